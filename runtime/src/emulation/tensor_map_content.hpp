#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arguments/attention_backward.h"
#include "emulation/device_headers/emulator/machine.h"
#include "tensor_map/tensor_map.hpp"

namespace backlight::emulation {

constexpr std::size_t element_bytes(ElementType type) {
    return type == ElementType::fp32 ? 4 : 2;
}

constexpr int tensor_rank_limit = 5;

/// What an encoded tensor map says: a tensor of which a box is copied at a time, elements outside
/// the tensor read as zero. Dimensions fastest first; those from `rank` on are not used.
struct TensorMapContent {
    std::byte* address = nullptr;
    ElementType type = ElementType::bf16;
    tensor_map::Swizzle swizzle = tensor_map::Swizzle::none;
    int rank = 1;
    std::array<std::int64_t, tensor_rank_limit> extents{};
    /// Bytes from one index to the next, of dimensions 1, 2, …; dimension 0 is contiguous.
    std::array<std::int64_t, tensor_rank_limit - 1> strides{};
    std::array<std::int64_t, tensor_rank_limit> box{};
    /// Written by a kernel: who uses it must acquire it.
    bool published = false;

    friend bool operator==(const TensorMapContent&, const TensorMapContent&) = default;
};

/// The content of a map that passed tensor_map::check.
TensorMapContent content_of(const tensor_map::Request& request);

/// Writes the map's 128 bytes, with a mark and a checksum. Throws `invalid_argument` for what no
/// tensor map holds: a rank beyond 1 … 5, an extent beyond 1 … 2^32, a box beyond 1 … 256, a row of
/// the box that is no multiple of 16 bytes or wider than the swizzle, a stride or an address that
/// is no multiple of 16 bytes.
void encode(const TensorMapContent& content, kernel::TensorMap& map);

/// Reads a map back. Throws `invalid_argument` where the pointer is not aligned to 64 bytes or the
/// 128 bytes there were not written by `encode`: uninitialised, overwritten, or something else.
TensorMapContent decode(const void* map);

}  // namespace backlight::emulation
