// Which scores of a tile are none: the mask as a band of diagonals, and keys that do not exist.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/layout.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

constexpr bool in_band = bounded_last_diagonal;
static_assert(bounded_last_diagonal || !bounded_first_diagonal, "a window has both bounds");

/// Whether any tile is masked score by score.
constexpr bool has_edges = in_band || partial_key_tiles;

/// The queries that see any key of a tile are those from the first on, which begins a query tile
/// and may itself see none, up to the end.
__device__ __forceinline__ int first_query_of(const MmaResidentArguments& arguments,
                                              const Tile& tile) {
    if constexpr (bounded_last_diagonal) {
        return max(0, tile.kv_start - last_diagonal_of(arguments, tile)) / block_q * block_q;
    } else {
        return tile.first_query_tile() * block_q;
    }
}
__device__ __forceinline__ int queries_end_of(const MmaResidentArguments& arguments,
                                              const Tile& tile) {
    if constexpr (bounded_first_diagonal) {
        const int keys_end = min(tile.kv_start + block_kv, seqlen_kv_of(arguments, tile));
        return min(seqlen_q_of(arguments, tile), keys_end - first_diagonal_of(arguments, tile));
    } else {
        return seqlen_q_of(arguments, tile);
    }
}

/// Only a band leaves keys that no query sees; or packed sequences, which may have no queries, or
/// queries alone.
__device__ __forceinline__ bool is_unseen(const MmaResidentArguments& arguments, const Tile& tile) {
    if constexpr (packed) {
        return tile.kv_start >= seqlen_kv_of(arguments, tile) ||
               queries_end_of(arguments, tile) <= first_query_of(arguments, tile);
    } else if constexpr (in_band) {
        return queries_end_of(arguments, tile) <= first_query_of(arguments, tile);
    } else {
        return false;
    }
}

/// Whether a tile has fewer keys than rows.
__device__ __forceinline__ bool lacks_keys(const MmaResidentArguments& arguments,
                                           const Tile& tile) {
    return partial_key_tiles && tile.kv_start + block_kv > seqlen_kv_of(arguments, tile);
}

/// Whether some of the scores of the tile's keys and of the query tile are none.
__device__ __forceinline__ bool is_edge(const MmaResidentArguments& arguments, const Tile& tile,
                                        int query_start) {
    bool edge = lacks_keys(arguments, tile);
    if constexpr (bounded_last_diagonal) {
        edge |= tile.kv_start + block_kv - 1 - query_start > last_diagonal_of(arguments, tile);
    }
    if constexpr (bounded_first_diagonal) {
        edge |= tile.kv_start - (query_start + block_q - 1) < first_diagonal_of(arguments, tile);
    }
    return edge;
}

/// What a thread holds of the scores at an edge, from its first key and its first query on.
struct EdgeScores {
    int keys_left;       // that exist, from the first on
    int after_last;      // diagonals by which the first score lies behind the last one that is seen
    int after_first;     // and behind the first one
    uint32_t diagonals;  // that are seen, but for the first

    __device__ __forceinline__ EdgeScores(const MmaResidentArguments& arguments, const Tile& tile,
                                          int key, int query)
        : keys_left(seqlen_kv_of(arguments, tile) - key),
          after_last(key - query - last_diagonal_of(arguments, tile)),
          after_first(key - query - first_diagonal_of(arguments, tile)),
          diagonals(static_cast<uint32_t>(arguments.last_diagonal - arguments.first_diagonal)) {}

    /// Whether number `i` of a fragment is no score.
    __device__ __forceinline__ bool hides(int fragment, int i) const {
        const int key = i / 2 * 8;
        const int query = fragment * mma_n + i % 2;
        if (partial_key_tiles && key >= keys_left) {
            return true;
        }
        // Unsigned, a diagonal before the first lies behind the last too.
        return bounded_first_diagonal ? static_cast<uint32_t>(after_first + key - query) > diagonals
                                      : bounded_last_diagonal && after_last + key > query;
    }
};

/// The same on the diagonal of a square causal mask, where only a thread's place in its tiles
/// counts.
struct DiagonalScores {
    int behind;  // how far the first key lies behind the first query

    __device__ __forceinline__ bool hides(int fragment, int i) const {
        return behind + i / 2 * 8 > fragment * mma_n + i % 2;
    }
};

/// Where nothing is hidden.
struct WholeScores {
    __device__ __forceinline__ static constexpr bool hides(int, int) { return false; }
};

}  // namespace backlight::kernel
