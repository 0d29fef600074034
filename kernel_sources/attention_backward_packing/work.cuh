// What a block of a main kernel works on where sequences are packed: the order of tickets. One warp
// finds it out, and the block reads it in shared memory.
//
// Sequences come one after the other, those of most queries first, since their tiles take longest;
// within a sequence heads are taken in groups, as in attention_backward_rounds/work.cuh. Every
// sequence's dQ has a place of its own in the accumulator: places for the longest would not come
// round with sequences of other lengths, and hold less.
#pragma once

#include "arguments/packing.h"
#include "attention_backward_packing/sequences.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// A ticket's place.
struct PackedPlace {
    PackedSequence sequence;
    int head;
    int kv_tile;

    /// By all lanes of a warp; of a ticket of some sequence's.
    template <typename Arguments>
    __device__ __forceinline__ PackedPlace(const Arguments& arguments, int ticket, int lane) {
        const PackedSequence* const order = arguments.packed.order;
        const int heads = arguments.heads;
        const int tile = ticket / heads;
        sequence = order[last_at_most(arguments.packed.sequences, lane,
                                      [&](int index) { return order[index].first_tile <= tile; })];
        const int most_heads = arguments.heads_per_group;
        const int in_sequence = ticket - sequence.first_tile * heads;
        const int group = in_sequence / (most_heads * sequence.key_tiles);
        const int in_group = in_sequence - group * most_heads * sequence.key_tiles;
        const int group_heads = min(most_heads, heads - group * most_heads);
        kv_tile = in_group / group_heads;
        if constexpr (specialisation::deterministic) {
            kv_tile = sequence.key_tiles - 1 - kv_tile;
        }
        head = group * most_heads + in_group % group_heads;
    }

    template <typename Arguments>
    __device__ __forceinline__ int batch_head(const Arguments& arguments) const {
        return sequence.sequence * arguments.heads + head;
    }
};

// 32 bytes of shared memory hold a tile, and a conversion.

__device__ __forceinline__ void store_packed_work(uint32_t address, int a, int b, int c, int d,
                                                  int e, int f, int g, int h) {
    const auto bits = [](int value) { return static_cast<uint32_t>(value); };
    store_shared(address, uint4{bits(a), bits(b), bits(c), bits(d)});
    store_shared(address + 16, uint4{bits(e), bits(f), bits(g), bits(h)});
}

/// Leaves what a ticket stands for at the address, by all lanes of a warp.
template <typename Arguments>
__device__ __forceinline__ void find_packed_tile(const Arguments& arguments, int ticket,
                                                 uint32_t address, int lane) {
    const int tickets =
        arguments.packed.order[arguments.packed.sequences].first_tile * arguments.heads;
    if (ticket >= tickets) {
        if (lane == 0) {
            store_packed_work(address, Work::nothing, 0, 0, 0, 0, 0, 0, 0);
        }
        return;
    }
    const PackedPlace place(arguments, ticket, lane);
    const PackedSequence& sequence = place.sequence;
    if (lane == 0) {
        store_packed_work(address, place.batch_head(arguments), sequence.sequence, place.head,
                          place.kv_tile * specialisation::block_kv, sequence.seqlen_q,
                          sequence.seqlen_kv, sequence.first_row, sequence.kv_begin);
    }
}

/// The same of the share of a conversion, which is that of the tile of so many tickets before: when
/// that was drawn, all of its head's had been, and as many others as there are blocks.
template <typename Arguments>
__device__ __forceinline__ void find_packed_conversion(const Arguments& arguments, int ticket,
                                                       uint32_t address, int lane) {
    const PackedSequence& totals = arguments.packed.order[arguments.packed.sequences];
    const int lag = arguments.heads_per_group * totals.key_tiles + arguments.conversion_lag;
    const int of_ticket = ticket - lag;
    if (of_ticket < 0 || of_ticket >= totals.first_tile * arguments.heads) {
        if (lane == 0) {
            store_packed_work(address, Work::nothing, 0, 0, 0, 0, 0, 0, 0);
        }
        return;
    }
    const PackedPlace place(arguments, of_ticket, lane);
    const PackedSequence& sequence = place.sequence;
    const int query_tiles =
        heads_per_kv_head_of(arguments) *
        (whole_tiles(sequence.seqlen_q, specialisation::block_q) / specialisation::block_q);
    const int first = place.kv_tile * query_tiles / sequence.key_tiles;
    const int end = (place.kv_tile + 1) * query_tiles / sequence.key_tiles;
    if (lane == 0) {
        const int batch_head = end > first ? place.batch_head(arguments) : Work::nothing;
        // The queries' heads and the first row go together with the keys' head.
        store_packed_work(address, batch_head, first, end - first, sequence.seqlen_q,
                          sequence.first_row, sequence.q_begin, place.head, sequence.key_tiles);
    }
}

/// Reads what one of these has left.
__device__ __forceinline__ Tile load_packed_tile(uint32_t address) {
    const uint4 first = load_shared<uint4>(address);
    const uint4 second = load_shared<uint4>(address + 16);
    Tile tile;
    tile.batch_head = static_cast<int>(first.x);
    tile.batch = static_cast<int>(first.y);
    tile.head = static_cast<int>(first.z);
    tile.kv_start = static_cast<int>(first.w);
    tile.seqlen_q = static_cast<int>(second.x);
    tile.seqlen_kv = static_cast<int>(second.y);
    tile.first_row = static_cast<int>(second.z);
    tile.kv_begin = static_cast<int>(second.w);
    return tile;
}
__device__ __forceinline__ Conversion load_packed_conversion(uint32_t address) {
    const uint4 first = load_shared<uint4>(address);
    const uint4 second = load_shared<uint4>(address + 16);
    Conversion conversion;
    conversion.batch_head = static_cast<int>(first.x);
    conversion.first_query_tile = static_cast<int>(first.y);
    conversion.query_tiles = static_cast<int>(first.z);
    conversion.seqlen_q = static_cast<int>(first.w);
    conversion.first_row = static_cast<int>(second.x);
    conversion.q_begin = static_cast<int>(second.y);
    conversion.head = static_cast<int>(second.z);
    conversion.key_tiles = static_cast<int>(second.w);
    return conversion;
}

}  // namespace backlight::kernel
