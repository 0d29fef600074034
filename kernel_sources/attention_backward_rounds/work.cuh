// What a block of a main kernel works on: the order of tickets. For kernels whose accumulator of dQ
// is a ring of places in the L2 cache, and whose blocks convert dQ themselves.
//
// A ticket is a number drawn from a global counter; it stands for a tile of keys, and a share of a
// head's dQ to be converted. A block may wait for what lower tickets stand for, whose blocks are
// running, and for nothing else.
#pragma once

#include "primitives/global_counter.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

/// A tile of keys, and the queries that see it.
struct Tile {
    int batch;
    int head;
    int batch_head;
    int kv_start;
    // Where sequences are packed, of which `batch` is the number; see arguments/packing.h.
    int seqlen_q;
    int seqlen_kv;
    int first_row;
    int kv_begin;

    /// Query tiles that lie wholly above the diagonal see none of these keys.
    __device__ __forceinline__ int first_query_tile() const {
        return specialisation::causal ? kv_start / specialisation::block_q : 0;
    }
};

/// A share of a head's query tiles, whose dQ wants to be converted once it is complete.
struct Conversion {
    int batch_head;
    int first_query_tile;
    int query_tiles;
    // Where sequences are packed:
    int seqlen_q;
    int first_row;
    int q_begin;
    int head;
    int key_tiles;
};

template <typename Arguments>
__device__ __forceinline__ int seqlen_q_of(const Arguments& arguments) {
    return specialisation::seqlen_q != 0 ? specialisation::seqlen_q : arguments.seqlen_q;
}
template <typename Arguments>
__device__ __forceinline__ int seqlen_kv_of(const Arguments& arguments) {
    return specialisation::seqlen_kv != 0 ? specialisation::seqlen_kv : arguments.seqlen_kv;
}

/// Lengths in tiles, of which the last may be partial.
template <typename Arguments>
__device__ __forceinline__ int query_tiles_of(const Arguments& arguments) {
    constexpr int round_up = specialisation::partial_query_tiles ? specialisation::block_q - 1 : 0;
    return (seqlen_q_of(arguments) + round_up) / specialisation::block_q;
}
template <typename Arguments>
__device__ __forceinline__ int kv_tiles_of(const Arguments& arguments) {
    constexpr int round_up = specialisation::partial_key_tiles ? specialisation::block_kv - 1 : 0;
    return (seqlen_kv_of(arguments) + round_up) / specialisation::block_kv;
}

/// Rows that a head has in the workspace.
template <typename Arguments>
__device__ __forceinline__ int padded_seqlen_q_of(const Arguments& arguments) {
    return specialisation::partial_query_tiles ? query_tiles_of(arguments) * specialisation::block_q
                                               : seqlen_q_of(arguments);
}

/// Heads of queries that use one head of keys and values. The heads of this file are those of keys
/// and values: the query tiles of such a head are those of all its heads of queries.
template <typename Arguments>
__device__ __forceinline__ int heads_per_kv_head_of(const Arguments& arguments) {
    if constexpr (specialisation::grouped_heads) {
        return arguments.heads_per_kv_head;
    } else {
        return 1;
    }
}
template <typename Arguments>
__device__ __forceinline__ int all_query_tiles_of(const Arguments& arguments) {
    return heads_per_kv_head_of(arguments) * query_tiles_of(arguments);
}

/// How many heads the accumulator has room for. Places come round: a head's is that of the one so
/// many heads earlier, whose dQ must have been converted, and zeros left in its place, before.
template <typename Arguments>
__device__ __forceinline__ int places_of(const Arguments& arguments) {
    return arguments.accumulator_heads;
}

/// Where the accumulator holds a head's dQ.
template <typename Arguments>
__device__ __forceinline__ float* accumulator_place(const Arguments& arguments, int batch_head) {
    constexpr int tile_elements = specialisation::block_q * specialisation::head_dim;
    return arguments.d_q_accumulator + static_cast<int64_t>(batch_head % places_of(arguments)) *
                                           all_query_tiles_of(arguments) * tile_elements;
}

/// Whether another head comes to a head's place, which needs zeros there.
template <typename Arguments>
__device__ __forceinline__ bool place_has_next(const Arguments& arguments, int batch_head) {
    return batch_head + places_of(arguments) < arguments.batch_heads;
}

/// Waits, before a head's dQ is added to its place, until the dQ of the head that had the place has
/// been converted, and zeros left; tells whether there was one.
template <typename Arguments>
__device__ __forceinline__ bool wait_for_place(const Arguments& arguments, int batch_head) {
    const int head_before = batch_head - places_of(arguments);
    if (head_before < 0) {
        return false;
    }
    wait_for_global_counter<64>(arguments.counters.converted + head_before,
                                static_cast<uint32_t>(kv_tiles_of(arguments)));
    return true;
}

/// Waits, before a head's dQ is converted, until all its key tiles have been worked on.
template <typename Arguments>
__device__ __forceinline__ void wait_until_added(const Arguments& arguments, int batch_head) {
    wait_for_global_counter<256>(arguments.counters.added + batch_head,
                                 static_cast<uint32_t>(kv_tiles_of(arguments)));
}

/// What a ticket stands for. Heads are taken in groups, whose queries and dQ the L2 cache holds,
/// and within a group those tiles come first that most queries see (where dQ is summed in one
/// order, last: see turns.cuh). In round r begin the key tiles of group r and the conversion of the
/// dQ of group r − conversion_lag; the host chooses the lag such that what the conversion waits for
/// has most often happened. Rounds at either end are not full.
struct Work {
    // In place of a (batch, head) index: there is nothing of the kind to do; no ticket is left.
    static constexpr int nothing = -1;
    static constexpr int end = -2;

    Tile tile;
    Conversion conversion;

    __device__ __forceinline__ bool has_tile() const { return tile.batch_head >= 0; }
    __device__ __forceinline__ bool has_conversion() const { return conversion.batch_head >= 0; }
    __device__ __forceinline__ bool is_end() const { return tile.batch_head == end; }

    __device__ __forceinline__ Work() {}

    template <typename Arguments>
    __device__ __forceinline__ Work(const Arguments& arguments, int group_heads, int ticket) {
        const int kv_tiles = kv_tiles_of(arguments);
        const int query_tiles = all_query_tiles_of(arguments);
        const int round = ticket / (group_heads * kv_tiles);
        const int in_round = ticket - round * group_heads * kv_tiles;
        int kv_tile = in_round / group_heads;
        if constexpr (specialisation::deterministic) {
            kv_tile = kv_tiles - 1 - kv_tile;
        }
        const int head_in_group = in_round % group_heads;
        const auto head_of = [&](int group) {
            const int batch_head = group * group_heads + head_in_group;
            return group >= 0 && batch_head < arguments.batch_heads ? batch_head : nothing;
        };

        tile.batch_head = head_of(round);
        tile.batch = tile.batch_head / arguments.heads;
        tile.head = tile.batch_head % arguments.heads;
        tile.kv_start = kv_tile * specialisation::block_kv;
        conversion.batch_head = head_of(round - arguments.conversion_lag);
        // Unsigned: also what was drawn from a counter that nobody has set.
        if (static_cast<uint32_t>(ticket) >= static_cast<uint32_t>(arguments.tickets)) {
            tile.batch_head = end;
            conversion.batch_head = nothing;
        }
        // A head's query tiles are shared among as many tickets as it has key tiles.
        conversion.first_query_tile = kv_tile * query_tiles / kv_tiles;
        conversion.query_tiles =
            (kv_tile + 1) * query_tiles / kv_tiles - conversion.first_query_tile;
    }
};

}  // namespace backlight::kernel
