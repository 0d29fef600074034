#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace backlight::tensor_map {

/// How a tile's rows lie in shared memory.
enum class Swizzle { none, bytes_32, bytes_64, bytes_128 };

enum class ElementType { bf16, fp16, fp32 };

constexpr std::int64_t element_bytes(ElementType type) {
    return type == ElementType::fp32 ? 4 : 2;
}

constexpr int rank_limit = 5;

/// A tensor map to be encoded: a tensor, dimensions fastest first (those of the attention are
/// head_dim, seqlen, head, batch), of which a box is copied at a time. Dimensions from `rank` on
/// are not used. Everything is 64-bit until the rules have been checked.
struct Request {
    const void* address = nullptr;
    ElementType type = ElementType::bf16;
    int rank = 4;
    std::array<std::int64_t, rank_limit> extents{};
    /// Elements from one index to the next, of dimensions 1, 2, …
    std::array<std::int64_t, rank_limit - 1> strides{};
    std::array<std::int64_t, rank_limit> box{};
    Swizzle swizzle = Swizzle::bytes_128;
};

/// Checks every documented rule of cuTensorMapEncodeTiled (CUDA Driver API, Tensor Map Object
/// Management); throws `invalid_argument` naming the operand, the value and the rule. `operand` is
/// the name of the tensor in the message, for example "q".
void check(const Request& request, std::string_view operand);

}  // namespace backlight::tensor_map
