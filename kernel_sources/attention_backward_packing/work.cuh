// What a block of a main kernel works on where sequences are packed: the order of tickets. One warp
// finds it out, or one thread, and the block reads it in shared memory.
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

/// Heads that are taken together, of those that there are.
template <typename Arguments>
__device__ __forceinline__ int heads_at_once(const Arguments& arguments) {
    return min(arguments.heads_per_group, arguments.heads);
}

/// A ticket's place.
struct PackedPlace {
    PackedSequence sequence;
    int head;
    int kv_tile;

    /// Of a ticket of that sequence's.
    template <typename Arguments>
    __device__ __forceinline__ PackedPlace(const Arguments& arguments, const PackedSequence& its,
                                           int ticket)
        : sequence(its) {
        const int heads = arguments.heads;
        const int most_heads = heads_at_once(arguments);
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

/// The sequence of one of all sequences' tickets. `last_of(count, at_most)` is a search for the
/// last for which `at_most` holds.
template <typename Arguments, typename LastOf>
__device__ __forceinline__ const PackedSequence& sequence_of_ticket(const Arguments& arguments,
                                                                    int ticket,
                                                                    const LastOf& last_of) {
    const PackedSequence* const order = arguments.packed.order;
    const int tile = ticket / arguments.heads;
    return order[last_of(arguments.packed.sequences,
                         [&](int index) { return order[index].first_tile <= tile; })];
}

/// Tickets that stand for tiles; behind them some stand for conversions alone.
template <typename Arguments>
__device__ __forceinline__ int packed_tile_tickets(const Arguments& arguments) {
    return arguments.packed.order[arguments.packed.sequences].first_tile * arguments.heads;
}
/// Tickets between that of a tile and that of the conversion of its share: when this one is drawn,
/// all of its head's tiles have been, and as many others as there are blocks.
template <typename Arguments>
__device__ __forceinline__ int packed_lag(const Arguments& arguments) {
    return heads_at_once(arguments) * arguments.packed.order[arguments.packed.sequences].key_tiles +
           arguments.conversion_lag;
}

// 32 bytes of shared memory hold a tile, and a conversion.

__device__ __forceinline__ void store_packed_work(uint32_t address, int a, int b, int c, int d,
                                                  int e, int f, int g, int h) {
    const auto bits = [](int value) { return static_cast<uint32_t>(value); };
    store_shared(address, uint4{bits(a), bits(b), bits(c), bits(d)});
    store_shared(address + 16, uint4{bits(e), bits(f), bits(g), bits(h)});
}

/// Leaves what a ticket stands for at the address: by one thread, or by all lanes of a warp where
/// that searches, of which one `writes`.
template <typename Arguments, typename LastOf>
__device__ __forceinline__ void find_packed_tile(const Arguments& arguments, int ticket,
                                                 uint32_t address, bool writes,
                                                 const LastOf& last_of) {
    if (ticket >= packed_tile_tickets(arguments)) {
        if (writes) {
            store_packed_work(address, Work::nothing, 0, 0, 0, 0, 0, 0, 0);
        }
        return;
    }
    const PackedPlace place(arguments, sequence_of_ticket(arguments, ticket, last_of), ticket);
    const PackedSequence& sequence = place.sequence;
    if (writes) {
        // A sequence of queries alone has no keys to be loaded from anywhere.
        const int number = sequence.seqlen_kv > 0 ? sequence.sequence : Work::nothing;
        store_packed_work(address, place.batch_head(arguments), number, place.head,
                          place.kv_tile * specialisation::block_kv, sequence.seqlen_q,
                          sequence.seqlen_kv, sequence.first_row, sequence.kv_begin);
    }
}
template <typename Arguments>
__device__ __forceinline__ void find_packed_tile(const Arguments& arguments, int ticket,
                                                 uint32_t address, int lane) {
    find_packed_tile(arguments, ticket, address, lane == 0, SearchByWarp{lane});
}

/// The same of the share of a conversion.
template <typename Arguments, typename LastOf>
__device__ __forceinline__ void find_packed_conversion(const Arguments& arguments, int ticket,
                                                       uint32_t address, bool writes,
                                                       const LastOf& last_of) {
    const int of_ticket = ticket - packed_lag(arguments);
    if (of_ticket < 0 || of_ticket >= packed_tile_tickets(arguments)) {
        if (writes) {
            store_packed_work(address, Work::nothing, 0, 0, 0, 0, 0, 0, 0);
        }
        return;
    }
    const PackedPlace place(arguments, sequence_of_ticket(arguments, of_ticket, last_of),
                            of_ticket);
    const PackedSequence& sequence = place.sequence;
    const int query_tiles =
        heads_per_kv_head_of(arguments) *
        (whole_tiles(sequence.seqlen_q, specialisation::block_q) / specialisation::block_q);
    const int first = place.kv_tile * query_tiles / sequence.key_tiles;
    const int end = (place.kv_tile + 1) * query_tiles / sequence.key_tiles;
    if (writes) {
        const int batch_head = end > first ? place.batch_head(arguments) : Work::nothing;
        // The queries' heads and the first row go together with the keys' head.
        store_packed_work(address, batch_head, first, end - first, sequence.seqlen_q,
                          sequence.first_row, sequence.q_begin, place.head, sequence.key_tiles);
    }
}
template <typename Arguments>
__device__ __forceinline__ void find_packed_conversion(const Arguments& arguments, int ticket,
                                                       uint32_t address, int lane) {
    find_packed_conversion(arguments, ticket, address, lane == 0, SearchByWarp{lane});
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
