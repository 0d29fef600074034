// Which scores of a tile are none: the mask as a band of diagonals, and keys that do not exist. For
// kernels whose blocks own tiles of keys.
#pragma once

#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::bounded_first_diagonal;
using specialisation::bounded_last_diagonal;
using specialisation::partial_key_tiles;

constexpr bool in_band = bounded_last_diagonal;
static_assert(bounded_last_diagonal || !bounded_first_diagonal, "a window has both bounds");

/// Whether any tile is masked score by score.
constexpr bool has_edges = in_band || partial_key_tiles;

/// The queries that see any key of a tile are those from the first on, which begins a query tile
/// and may itself see none, up to the end.
template <typename Arguments>
__device__ __forceinline__ int first_query_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (bounded_last_diagonal) {
        return max(0, tile.kv_start - last_diagonal_of(arguments, tile)) / specialisation::block_q *
               specialisation::block_q;
    } else {
        return tile.first_query_tile() * specialisation::block_q;
    }
}
template <typename Arguments>
__device__ __forceinline__ int queries_end_of(const Arguments& arguments, const Tile& tile) {
    if constexpr (bounded_first_diagonal) {
        const int keys_end =
            min(tile.kv_start + specialisation::block_kv, seqlen_kv_of(arguments, tile));
        return min(seqlen_q_of(arguments, tile), keys_end - first_diagonal_of(arguments, tile));
    } else {
        return seqlen_q_of(arguments, tile);
    }
}

/// The last key tile that visits a query tile.
template <typename Arguments>
__device__ __forceinline__ int last_key_tile_of(const Arguments& arguments, const Tile& tile,
                                                int query_start) {
    using specialisation::block_kv;
    if constexpr (specialisation::causal) {
        return query_start / block_kv;
    } else if constexpr (bounded_last_diagonal) {
        const int last_key =
            query_start + specialisation::block_q - 1 + last_diagonal_of(arguments, tile);
        return min(last_key / block_kv, kv_tiles_of(arguments, tile) - 1);
    } else {
        return kv_tiles_of(arguments, tile) - 1;
    }
}

/// Only a band leaves keys that no query sees; or packed sequences, which may have no queries, or
/// queries alone.
template <typename Arguments>
__device__ __forceinline__ bool is_unseen(const Arguments& arguments, const Tile& tile) {
    if constexpr (specialisation::packed) {
        return tile.kv_start >= seqlen_kv_of(arguments, tile) ||
               queries_end_of(arguments, tile) <= first_query_of(arguments, tile);
    } else if constexpr (in_band) {
        return queries_end_of(arguments, tile) <= first_query_of(arguments, tile);
    } else {
        return false;
    }
}

// Of so many keys from one on, all of the tile's or some of them:

/// Whether some of them do not exist.
template <int keys, typename Arguments>
__device__ __forceinline__ bool lacks_keys(const Arguments& arguments, const Tile& tile,
                                           int first_key) {
    return partial_key_tiles && first_key + keys > seqlen_kv_of(arguments, tile);
}

/// Whether some of their scores with a query tile are none.
template <int keys, typename Arguments>
__device__ __forceinline__ bool is_edge(const Arguments& arguments, const Tile& tile, int first_key,
                                        int query_start) {
    bool edge = lacks_keys<keys>(arguments, tile, first_key);
    if constexpr (bounded_last_diagonal) {
        edge |= first_key + keys - 1 - query_start > last_diagonal_of(arguments, tile);
    }
    if constexpr (bounded_first_diagonal) {
        edge |= first_key - (query_start + specialisation::block_q - 1) <
                first_diagonal_of(arguments, tile);
    }
    return edge;
}

/// Whether any of their scores with a query tile is one.
template <int keys, typename Arguments>
__device__ __forceinline__ bool is_seen(const Arguments& arguments, const Tile& tile, int first_key,
                                        int query_start) {
    bool seen = !partial_key_tiles || first_key < seqlen_kv_of(arguments, tile);
    if constexpr (bounded_last_diagonal) {
        seen &= first_key - (query_start + specialisation::block_q - 1) <=
                last_diagonal_of(arguments, tile);
    }
    if constexpr (bounded_first_diagonal) {
        const int keys_end = min(first_key + keys, seqlen_kv_of(arguments, tile));
        seen &= keys_end - 1 - query_start >= first_diagonal_of(arguments, tile);
    }
    return seen;
}

/// What there is of the scores at an edge, from one key and one query on: those of a tile, or of
/// the fragments that a thread holds.
struct EdgeScores {
    int keys_left;       // that exist, from the first on
    int after_last;      // diagonals by which the first score lies behind the last one that is seen
    int after_first;     // and behind the first one
    uint32_t diagonals;  // that are seen, but for the first

    __device__ __forceinline__ EdgeScores() {}

    template <typename Arguments>
    __device__ __forceinline__ EdgeScores(const Arguments& arguments, const Tile& tile, int key,
                                          int query)
        : keys_left(seqlen_kv_of(arguments, tile) - key),
          after_last(key - query - last_diagonal_of(arguments, tile)),
          after_first(key - query - first_diagonal_of(arguments, tile)),
          diagonals(static_cast<uint32_t>(arguments.last_diagonal - arguments.first_diagonal)) {}

    /// From a score on that lies so far behind.
    __device__ __forceinline__ EdgeScores moved(int keys, int queries) const {
        EdgeScores result = *this;
        result.keys_left -= keys;
        result.after_last += keys - queries;
        result.after_first += keys - queries;
        return result;
    }

    /// Whether number `i` of a fragment of 16 keys by 8 queries is no score.
    __device__ __forceinline__ bool hides(int fragment, int i) const {
        const int key = i / 2 * 8;
        const int query = fragment * 8 + i % 2;
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
        return behind + i / 2 * 8 > fragment * 8 + i % 2;
    }
};

/// Where nothing is hidden.
struct WholeScores {
    __device__ __forceinline__ static constexpr bool hides(int, int) { return false; }
};

}  // namespace backlight::kernel
