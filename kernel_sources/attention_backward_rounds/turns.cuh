// In which order key tiles add to a query tile's dQ, where it is to be the same in every run.
//
// It is that of their tickets: the last keys that the query tile sees come first. So a block waits
// for lower tickets alone, whose blocks are running. Blocks walk from the first query that sees
// their keys to the last. Under a causal mask those of the last keys start nearest to a query tile
// on the diagonal, and blocks that begin one after another, or all at once, come to it in this very
// order. Without a mask they come in it as soon as they are one query tile apart, which a head's
// blocks become in their first tiles and then pass on to those that follow them.
//
// That the long tiles of a causal mask begin last leaves some multiprocessors idle at the end.
#pragma once

#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/global_counter.cuh"

namespace backlight::kernel {

/// The counter of a query tile, of that head of the key tile's group. Where sequences are packed,
/// one for as many rows of the workspace as a tile has.
template <typename Arguments>
__device__ __forceinline__ uint32_t* turn_counter(const Arguments& arguments, const Tile& key_tile,
                                                  int head_in_group, int query_start) {
    constexpr int block_q = specialisation::block_q;
    if constexpr (specialisation::packed) {
        const int64_t first_row =
            first_row_of(arguments, key_tile) +
            static_cast<int64_t>(head_in_group) * padded_seqlen_q_of(arguments, key_tile);
        return arguments.turns + (first_row + query_start) / block_q;
    } else {
        const int64_t head =
            static_cast<int64_t>(key_tile.batch_head) * heads_per_kv_head_of(arguments) +
            head_in_group;
        return arguments.turns + head * query_tiles_of(arguments) + query_start / block_q;
    }
}

/// Waits until all key tiles behind this one, up to the last that visits the query tile, have added
/// to its dQ. A key tile between two that visit a query tile visits it too: masks are bands.
template <typename Arguments>
__device__ __forceinline__ void wait_for_turn(const Arguments& arguments, const Tile& key_tile,
                                              int head_in_group, int query_start,
                                              int last_key_tile) {
    const int before = last_key_tile - key_tile.kv_start / specialisation::block_kv;
    if (before > 0) {
        wait_for_global_counter<32>(turn_counter(arguments, key_tile, head_in_group, query_start),
                                    static_cast<uint32_t>(before));
    }
}

/// Lets the key tile before this one add to the query tile's dQ: what the thread has added to it,
/// and what it has seen added by a barrier, comes first.
template <typename Arguments>
__device__ __forceinline__ void count_turn(const Arguments& arguments, const Tile& key_tile,
                                           int head_in_group, int query_start) {
    count_global(turn_counter(arguments, key_tile, head_in_group, query_start));
}

/// Where the last query tile begins that sees any of the keys.
template <typename Arguments>
__device__ __forceinline__ int last_query_tile_start(const Arguments& arguments,
                                                     const Tile& key_tile) {
    constexpr int block_q = specialisation::block_q;
    return (queries_end_of(arguments, key_tile) - 1) / block_q * block_q;
}

/// Counts the turn at the query tile that comes before this one, which is not the first, where
/// blocks visit those of one head of the group after those of another.
template <typename Arguments>
__device__ __forceinline__ void count_turn_before(const Arguments& arguments, const Tile& key_tile,
                                                  int head_in_group, int query_start) {
    if (specialisation::grouped_heads && query_start == first_query_of(arguments, key_tile)) {
        count_turn(arguments, key_tile, head_in_group - 1,
                   last_query_tile_start(arguments, key_tile));
    } else {
        count_turn(arguments, key_tile, head_in_group, query_start - specialisation::block_q);
    }
}

/// And that at the last one of all, if any query sees the keys.
template <typename Arguments>
__device__ __forceinline__ void count_last_turn(const Arguments& arguments, const Tile& key_tile) {
    if (!is_unseen(arguments, key_tile)) {
        count_turn(arguments, key_tile, heads_per_kv_head_of(arguments) - 1,
                   last_query_tile_start(arguments, key_tile));
    }
}

}  // namespace backlight::kernel
