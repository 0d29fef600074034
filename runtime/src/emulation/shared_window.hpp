#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor_map/tensor_map.hpp"

namespace backlight::emulation {

/// Shared memory of a block: byte i of `bytes` has the shared address `base` + i.
struct SharedWindow {
    std::uint32_t base = 0;
    std::span<std::byte> bytes;

    bool contains(std::uint32_t address, std::size_t size) const {
        return address >= base && address - base <= bytes.size() &&
               size <= bytes.size() - (address - base);
    }
    /// Of an address that the window contains.
    std::byte* at(std::uint32_t address) const { return bytes.data() + (address - base); }
};

/// Bytes of a row that a swizzle permutes; 0 without one.
constexpr std::uint32_t swizzle_width(tensor_map::Swizzle swizzle) {
    switch (swizzle) {
        case tensor_map::Swizzle::bytes_32:
            return 32;
        case tensor_map::Swizzle::bytes_64:
            return 64;
        case tensor_map::Swizzle::bytes_128:
            return 128;
        case tensor_map::Swizzle::none:
            break;
    }
    return 0;
}

/// Bytes after which a swizzle's pattern repeats: eight rows of its width. Without one, 16: the
/// unit that a swizzle moves.
constexpr std::uint32_t pattern_bytes(tensor_map::Swizzle swizzle) {
    return swizzle == tensor_map::Swizzle::none ? 16 : 8 * swizzle_width(swizzle);
}

/// Where the byte at `address` of an unswizzled tile lies: the number of the 16-byte chunk in its
/// row is XORed with the bits of the address from 128 bytes up. `phase` is subtracted from these
/// bits first: the base offset of a matrix descriptor.
constexpr std::uint32_t swizzled(tensor_map::Swizzle swizzle, std::uint32_t address,
                                 std::uint32_t phase = 0) {
    const std::uint32_t chunks = swizzle_width(swizzle) / 16;
    return chunks == 0 ? address : address ^ ((((address >> 7) - phase) & (chunks - 1)) << 4);
}

}  // namespace backlight::emulation
