// The lengths and places that a tile of keys goes by: those of all heads, or where sequences are
// packed those of its own.
#pragma once

#include "attention_backward_rounds/work.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"

namespace backlight::kernel {

template <typename Arguments>
__device__ __forceinline__ int seqlen_q_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed) {
        return tile.seqlen_q;
    } else {
        return seqlen_q_of(arguments);
    }
}
template <typename Arguments>
__device__ __forceinline__ int seqlen_kv_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed) {
        return tile.seqlen_kv;
    } else {
        return seqlen_kv_of(arguments);
    }
}

/// Key tiles of the heads of a tile's sequence.
template <typename Arguments>
__device__ __forceinline__ int kv_tiles_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed) {
        constexpr int block_kv = specialisation::block_kv;
        return (tile.seqlen_kv + block_kv - 1) / block_kv;
    } else {
        return kv_tiles_of(arguments);
    }
}

/// Query tiles of one of its heads.
template <typename Arguments, typename Part>
__device__ __forceinline__ int query_tiles_of(const Arguments& arguments, const Part& part) {
    if constexpr (specialisation::packed) {
        constexpr int block_q = specialisation::block_q;
        return (part.seqlen_q + block_q - 1) / block_q;
    } else {
        return query_tiles_of(arguments);
    }
}

/// Rows that a head of a tile's, or of a conversion's, has in the workspace.
template <typename Arguments, typename Part>
__device__ __forceinline__ int padded_seqlen_q_of(const Arguments& arguments, const Part& part) {
    if constexpr (specialisation::packed) {
        constexpr int block_q = specialisation::block_q;
        return (part.seqlen_q + block_q - 1) / block_q * block_q;
    } else {
        return padded_seqlen_q_of(arguments);
    }
}

/// The first and the last diagonal that the mask leaves, where it is bounded there.
template <typename Arguments>
__device__ __forceinline__ int first_diagonal_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed && specialisation::mask_from_end) {
        return arguments.first_diagonal + (tile.seqlen_kv - tile.seqlen_q);
    } else {
        return arguments.first_diagonal;
    }
}
template <typename Arguments>
__device__ __forceinline__ int last_diagonal_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed && specialisation::mask_from_end) {
        return arguments.last_diagonal + (tile.seqlen_kv - tile.seqlen_q);
    } else {
        return arguments.last_diagonal;
    }
}

/// Rows in the workspace before those of the first head of queries that uses the keys of a tile, or
/// whose dQ a conversion has a share of.
template <typename Arguments, typename Part>
__device__ __forceinline__ int64_t first_row_of(const Arguments& arguments, const Part& part) {
    if constexpr (specialisation::packed) {
        const int64_t per_kv_head = heads_per_kv_head_of(arguments);
        return per_kv_head *
               (static_cast<int64_t>(part.first_row) * arguments.heads +
                static_cast<int64_t>(part.head) * padded_seqlen_q_of(arguments, part));
    } else {
        return static_cast<int64_t>(part.batch_head) * heads_per_kv_head_of(arguments) *
               padded_seqlen_q_of(arguments);
    }
}

/// Where the accumulator holds the dQ of those heads.
template <typename Arguments, typename Part>
__device__ __forceinline__ float* accumulator_of(const Arguments& arguments, const Part& part) {
    if constexpr (specialisation::packed) {
        return arguments.d_q_accumulator + first_row_of(arguments, part) * specialisation::head_dim;
    } else {
        return accumulator_place(arguments, part.batch_head);
    }
}

}  // namespace backlight::kernel
