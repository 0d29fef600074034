#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emulation/shared_window.hpp"
#include "emulation/tensor_map_content.hpp"

namespace backlight::emulation {

/// Bytes that a copy of one box adds to a barrier, elements out of bounds included.
std::size_t box_bytes(const TensorMapContent& content);

/// Bytes of shared memory from the box's address that a copy may touch. More than `box_bytes` where
/// rows are narrower than the swizzle: they lie a swizzle width apart.
std::size_t shared_bytes(const TensorMapContent& content);

/// Why a box cannot be copied to or from this shared address: not aligned to 128 bytes, not aligned
/// to the repetition of the swizzle's pattern, or beyond the window. Empty where it can.
std::string check_shared_address(const TensorMapContent& content, std::uint32_t address,
                                 const SharedWindow& shared);

/// Why no copy can start at these coordinates: the bytes before the first one along dimension 0, a
/// negative number too, are no multiple of 16. The H200 stops a kernel there with an "illegal
/// instruction". Empty where one can.
std::string check_coordinates(const TensorMapContent& content,
                              std::span<const std::int32_t> coordinates);

/// A part of a box, contiguous on both sides, of at most 16 bytes.
struct CopyPiece {
    std::uint32_t shared_address = 0;  ///< where the swizzle puts it
    std::byte* global = nullptr;       ///< null where it is out of the tensor's bounds
    std::uint32_t bytes = 0;
};

/// The pieces of the box at these coordinates (fastest first, `rank` of them, negative and beyond
/// the extents too), box order. A piece across a bound of dimension 0 is split there.
std::vector<CopyPiece> copy_pieces(const TensorMapContent& content,
                                   std::span<const std::int32_t> coordinates,
                                   std::uint32_t shared_address);

/// Global to shared; zero where out of bounds.
void load(std::span<const CopyPiece> pieces, const SharedWindow& shared);

/// Shared to global; what is out of bounds stays as it is.
void store(std::span<const CopyPiece> pieces, const SharedWindow& shared);

/// Adds shared memory to global memory, each sum rounded to the element type.
void reduce_add(ElementType type, std::span<const CopyPiece> pieces, const SharedWindow& shared);

/// Why a bulk copy (cp.async.bulk, cp.reduce.async.bulk) cannot be made: both addresses and the
/// size are multiples of 16 bytes, the size is not zero, and the window holds the shared side.
std::string check_bulk(std::uint32_t shared_address, const void* global, std::uint32_t bytes,
                       const SharedWindow& shared);

/// The pieces of a bulk copy, for `load`, `store` and `reduce_add`.
std::vector<CopyPiece> bulk_pieces(std::uint32_t shared_address, std::byte* global,
                                   std::uint32_t bytes);

}  // namespace backlight::emulation
