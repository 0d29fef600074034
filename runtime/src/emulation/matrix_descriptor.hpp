#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "emulation/device_headers/emulator/machine.h"
#include "emulation/matrix_fragments.hpp"
#include "emulation/shared_window.hpp"

namespace backlight::emulation {

/// The 64-bit value that tells wgmma where an operand of 16-bit elements lies in shared memory
/// (PTX ISA, "Matrix Descriptor Format"), decoded. All in bytes but for the base offset.
struct MatrixDescriptor {
    std::uint32_t start_address = 0;
    /// MN-major: from one swizzle width along M or N to the next (without a swizzle: from one
    /// group of 8 k to the next). K-major: from the first 8 k to the second, without a swizzle
    /// only; a swizzled row holds both.
    std::uint32_t leading_offset = 0;
    /// K-major: from 8 rows to the next 8. MN-major: from 8 k to the next 8 (without a swizzle:
    /// from 8 elements along M or N to the next 8).
    std::uint32_t stride_offset = 0;
    /// Where the swizzle's pattern starts, in units of 128 bytes from a 1024-byte boundary.
    std::uint32_t base_offset = 0;
    tensor_map::Swizzle swizzle = tensor_map::Swizzle::none;
};

MatrixDescriptor decode_descriptor(std::uint64_t bits);

/// Shared address of the element at `outer` (a row of A, a column of B) and k, below 16.
std::uint32_t element_address(const MatrixDescriptor& descriptor, Major major, int outer, int k);

/// Shared addresses of the 16-byte pieces, eight elements along the contiguous dimension each,
/// that wgmma reads of an operand of `outer` rows of A or columns of B: 2 · outer of them.
std::vector<std::uint32_t> piece_addresses(const MatrixDescriptor& descriptor, Major major,
                                           int outer);

/// Why an operand of `outer` rows or columns cannot be read through these bits: field, value and
/// rule. Empty where it can. `operand` is its name in the text, "A" or "B".
std::string validate_descriptor(std::uint64_t bits, Major major, int outer,
                                const SharedWindow& shared, const std::string& operand);

/// The 64×16 operand A behind a valid descriptor.
WgmmaMatrixA fetch_a(DataType type, const MatrixDescriptor& descriptor, Major major,
                     const SharedWindow& shared);

/// The 16×n operand B behind a valid descriptor. Columns from n on are not written.
void fetch_b(DataType type, const MatrixDescriptor& descriptor, Major major, int n,
             const SharedWindow& shared, WgmmaMatrixB& b);

}  // namespace backlight::emulation
