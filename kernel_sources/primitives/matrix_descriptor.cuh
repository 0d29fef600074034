// Where an operand of wgmma lies in shared memory, as the 64 bits that the instruction takes.
//
// An operand is read 16 elements of K at a time, in 16-byte chunks of eight 16-bit elements. With a
// swizzle its rows, as TMA writes them, are one swizzle width long (32, 64 or 128 bytes) and a
// pattern of eight rows repeats; wider operands are cut into panels of that width.
//
//     K-major    rows along M or N, K contiguous
//                stride: from 8 rows to the next 8; leading: from the first 8 k to the second, used
//                without a swizzle only
//     MN-major   rows along K, M or N contiguous
//                leading: from one panel to the next; stride: from 8 k to the next 8. Without a
//                swizzle: leading from 8 k to the next 8, stride from 8 elements of M or N to the
//                next 8
//
// No instruction is needed to build a descriptor: the emulated device compiles this very file.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Which dimension of an operand is contiguous in shared memory; the values are PTX's.
enum class Major : int { k = 0, mn = 1 };

/// How rows are permuted; the values are the descriptor's.
enum class MatrixSwizzle : int { none = 0, bytes_128 = 1, bytes_64 = 2, bytes_32 = 3 };

/// Bytes of a row that a swizzle permutes; without one, of a chunk.
__device__ constexpr int row_bytes(MatrixSwizzle swizzle) {
    return swizzle == MatrixSwizzle::bytes_128  ? 128
           : swizzle == MatrixSwizzle::bytes_64 ? 64
           : swizzle == MatrixSwizzle::bytes_32 ? 32
                                                : 16;
}

/// Everything of a descriptor but where the operand starts.
struct MatrixLayout {
    int leading_byte_offset;
    int stride_byte_offset;
    MatrixSwizzle swizzle;
};

/// A K-major tile that TMA has written row after row. `chunk_bytes` is from the first 8 k to the
/// second, which counts without a swizzle only.
__device__ constexpr MatrixLayout k_major_layout(MatrixSwizzle swizzle, int chunk_bytes = 16) {
    return MatrixLayout{chunk_bytes, 8 * row_bytes(swizzle), swizzle};
}

/// An MN-major tile that TMA has written row after row, in panels `panel_bytes` apart. Without a
/// swizzle a panel is 8 elements wide.
__device__ constexpr MatrixLayout mn_major_layout(MatrixSwizzle swizzle, int panel_bytes) {
    return swizzle == MatrixSwizzle::none
               ? MatrixLayout{8 * row_bytes(swizzle), panel_bytes, swizzle}
               : MatrixLayout{panel_bytes, 8 * row_bytes(swizzle), swizzle};
}

/// Bytes from 16 elements of K to the next 16: of a K-major tile within a swizzled row, and of an
/// MN-major tile.
constexpr int k_major_step = 32;
__device__ constexpr int mn_major_step(MatrixSwizzle swizzle) {
    return 16 * row_bytes(swizzle);
}

struct MatrixDescriptor {
    uint64_t bits;

    /// `start` is a multiple of 16; the swizzle's pattern starts at a multiple of eight of its
    /// rows.
    __device__ constexpr MatrixDescriptor(uint32_t start, MatrixLayout layout)
        : bits(field(start, 0) | field(static_cast<uint32_t>(layout.leading_byte_offset), 16) |
               field(static_cast<uint32_t>(layout.stride_byte_offset), 32) |
               static_cast<uint64_t>(layout.swizzle) << 62) {}

    /// The operand that lies that many bytes further on, a multiple of 16: one addition.
    __device__ constexpr MatrixDescriptor advanced(int bytes) const {
        return MatrixDescriptor(bits + static_cast<uint64_t>(bytes / 16));
    }

  private:
    __device__ constexpr explicit MatrixDescriptor(uint64_t given) : bits(given) {}

    /// Byte counts are kept in units of 16, in 14 bits.
    __device__ static constexpr uint64_t field(uint32_t bytes, int position) {
        return static_cast<uint64_t>((bytes & 0x3ffffu) >> 4) << position;
    }
};

}  // namespace backlight::kernel
