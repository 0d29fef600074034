// Which rows are a packed sequence's, in the tensors and in the workspace.
#pragma once

#include "arguments/packing.h"
#include "primitives/types.cuh"
#include "problem_options.cuh"

namespace backlight::kernel {

/// Of a tensor.
struct SequenceRows {
    int begin;
    int length;
};

/// Where a sequence begins; within the tensor whatever the array holds.
__device__ __forceinline__ int sequence_begin(const PackedRows& rows, int sequence) {
    return min(max(rows.cu_seqlens[sequence], 0), rows.total);
}

__device__ __forceinline__ SequenceRows sequence_rows(const PackedRows& rows, int sequence) {
    const int begin = sequence_begin(rows, sequence);
    const int end = min(max(rows.cu_seqlens[sequence + 1], begin), rows.total);
    int length = min(end - begin, rows.longest);
    if (rows.seqused != nullptr) {
        length = min(max(rows.seqused[sequence], 0), length);
    }
    return {begin, length};
}

/// Rows rounded up to whole tiles.
__device__ __forceinline__ int whole_tiles(int rows, int tile_rows) {
    return (rows + tile_rows - 1) / tile_rows * tile_rows;
}

/// Where a sequence's rows are in the workspace, of each head of queries. Rounding up the rows
/// before it a tile a sequence leaves room for the last tile of each, without a sum over them.
__device__ __forceinline__ int first_workspace_row(int q_begin, int sequence, int tile_rows) {
    return (q_begin + sequence * tile_rows) / tile_rows * tile_rows;
}

/// The last of `count` for which `at_most(index)` holds, which begin with those for which it does;
/// 0 if it holds for none. By all lanes of a warp.
template <typename AtMost>
__device__ __forceinline__ int last_at_most(int count, int lane, const AtMost& at_most) {
    int first = 0;
    while (count > 1) {
        const int step = (count + warp_size - 1) / warp_size;
        const int offset = lane * step;
        const bool holds = offset < count && at_most(first + offset);
        const uint32_t lanes = __ballot_sync(0xffffffffu, holds);
        const int moved = max(0, 31 - __clz(static_cast<int>(lanes))) * step;
        first += moved;
        count = min(step, count - moved);
    }
    return first;
}

/// The same as a function of count and predicate, by a warp or by one thread.
struct SearchByWarp {
    int lane;

    template <typename AtMost>
    __device__ __forceinline__ int operator()(int count, const AtMost& at_most) const {
        return last_at_most(count, lane, at_most);
    }
};
struct SearchAlone {
    template <typename AtMost>
    __device__ __forceinline__ int operator()(int count, const AtMost& at_most) const {
        int first = 0;
#pragma unroll 1
        while (count > 1) {
            const int half = count / 2;
            const bool behind = at_most(first + half);
            first += behind ? half : 0;
            count = behind ? count - half : half;
        }
        return first;
    }
};

/// Some rows of a sequence for a block of the kernels around the main one, which divide sequences
/// into blocks of `block_rows` rows. So many blocks as `packed_row_blocks` says a head find all
/// rows; some find none.
struct SequenceBlock {
    int sequence;
    SequenceRows rows;  // of the sequence
    int first_row;      // of the block, in the sequence

    /// By all lanes of a warp.
    __device__ __forceinline__ SequenceBlock(const PackedRows& all, int sequences, int block,
                                             int block_rows, int lane) {
        const auto first_block = [&](int index) {
            return sequence_begin(all, index) / block_rows + index;
        };
        sequence =
            last_at_most(sequences, lane, [&](int index) { return first_block(index) <= block; });
        rows = sequence_rows(all, sequence);
        first_row = (block - first_block(sequence)) * block_rows;
    }
};

/// Blocks of rows that a head has in any packing.
__device__ __forceinline__ int packed_row_blocks(const PackedRows& all, int sequences,
                                                 int block_rows) {
    return all.total / block_rows + sequences;
}

}  // namespace backlight::kernel
