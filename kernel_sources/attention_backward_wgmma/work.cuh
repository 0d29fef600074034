// What a block of the wgmma kernel works on: the order of tickets.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_wgmma/layout.cuh"

namespace backlight::kernel {

/// A tile of keys, and the queries that see it.
struct Tile {
    int batch;
    int head;
    int batch_head;
    int kv_start;

    /// Query tiles that lie wholly above the diagonal see none of these keys.
    __device__ __forceinline__ int first_query_tile() const {
        return causal ? kv_start / block_q : 0;
    }
};

/// A share of a head's query tiles, whose dQ wants to be converted once it is complete.
struct Conversion {
    int batch_head;
    int first_query_tile;
    int query_tiles;
};

/// Lengths in tiles.
__device__ __forceinline__ int query_tiles_of(const WgmmaArguments& arguments) {
    return (specialisation::seqlen_q != 0 ? specialisation::seqlen_q : arguments.seqlen_q) /
           block_q;
}
__device__ __forceinline__ int kv_tiles_of(const WgmmaArguments& arguments) {
    return (specialisation::seqlen_kv != 0 ? specialisation::seqlen_kv : arguments.seqlen_kv) /
           block_kv;
}

/// How many heads the accumulator has room for. Places come round: a head's is that of the one so
/// many heads earlier, whose dQ must have been converted, and zeros left in its place, before.
__device__ __forceinline__ int places_of(const WgmmaArguments& arguments) {
    return arguments.accumulator_heads;
}

/// Where the accumulator holds a head's dQ.
__device__ __forceinline__ float* accumulator_place(const WgmmaArguments& arguments,
                                                    int batch_head) {
    return arguments.d_q_accumulator + static_cast<int64_t>(batch_head % places_of(arguments)) *
                                           query_tiles_of(arguments) * (block_q * head_dim);
}

/// What a ticket stands for. Heads are taken in groups, whose queries and dQ the L2 cache holds,
/// and within a group those tiles come first that most queries see. In round r begin the key tiles
/// of group r and the conversion of the dQ of group r − conversion_lag; the host chooses the lag
/// such that what the conversion waits for has most often happened. Rounds at either end are not
/// full.
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

    __device__ __forceinline__ Work(const WgmmaArguments& arguments, int ticket) {
        constexpr int group_heads = specialisation::heads_per_group;
        const int kv_tiles = kv_tiles_of(arguments);
        const int query_tiles = query_tiles_of(arguments);
        const int round = ticket / (group_heads * kv_tiles);
        const int in_round = ticket - round * group_heads * kv_tiles;
        const int kv_tile = in_round / group_heads;
        const int head_in_group = in_round % group_heads;

        tile.batch_head = head_of(arguments, round, head_in_group);
        tile.batch = tile.batch_head / arguments.heads;
        tile.head = tile.batch_head % arguments.heads;
        tile.kv_start = kv_tile * block_kv;
        if (ticket >= arguments.tickets) {
            tile.batch_head = end;
        }

        conversion.batch_head = head_of(arguments, round - arguments.conversion_lag, head_in_group);
        // A head's query tiles are shared among as many tickets as it has key tiles.
        conversion.first_query_tile = kv_tile * query_tiles / kv_tiles;
        conversion.query_tiles =
            (kv_tile + 1) * query_tiles / kv_tiles - conversion.first_query_tile;
    }

  private:
    __device__ __forceinline__ static int head_of(const WgmmaArguments& arguments, int group,
                                                  int head_in_group) {
        const int batch_head = group * specialisation::heads_per_group + head_in_group;
        return group >= 0 && batch_head < arguments.batch_heads ? batch_head : nothing;
    }
};

}  // namespace backlight::kernel
