#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace backlight::tensor_map {

/// How a tile's rows lie in shared memory.
enum class Swizzle { none, bytes_32, bytes_64, bytes_128 };

constexpr int rank = 4;

/// A tensor map to be encoded: a four-dimensional tensor of 16-bit elements, dimensions fastest
/// first (head_dim, seqlen, head, batch), of which a box is loaded at a time. Everything is 64-bit
/// until the rules have been checked.
struct Request {
    const void* address = nullptr;
    bool fp16 = false;  // else bf16
    std::array<std::int64_t, rank> extents{};
    /// Elements from one index to the next, of dimensions 1, 2, 3.
    std::array<std::int64_t, rank - 1> strides{};
    std::array<std::int64_t, rank> box{};
    Swizzle swizzle = Swizzle::bytes_128;
};

/// Checks every documented rule of cuTensorMapEncodeTiled (CUDA Driver API, Tensor Map Object
/// Management); throws `invalid_argument` naming the operand, the value and the rule. `operand` is
/// the name of the tensor in the message, for example "q".
void check(const Request& request, std::string_view operand);

}  // namespace backlight::tensor_map
