// What the delta kernel prepares where sequences are packed: the order in which the main kernel
// takes them, and tensor maps that end where a sequence ends, so that TMA fills its last tiles with
// zeros although other sequences follow.
#pragma once

#include "arguments/packing.h"
#include "attention_backward_packing/sequences.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tensor_map.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

template <typename Combine>
__device__ __forceinline__ int combine_warp(int value, const Combine& combine) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(0xffffffffu, value, distance));
    }
    return value;
}

/// Tiles of keys of a head. A sequence without keys has one if it has queries, by which their dQ
/// becomes 0.
__device__ __forceinline__ int key_tiles_of(const SequenceRows& q, const SequenceRows& kv) {
    constexpr int tile_rows = specialisation::key_tile_rows;
    return max(whole_tiles(kv.length, tile_rows) / tile_rows, min(q.length, 1));
}

/// The order of tickets takes sequences of more queries first, whose tiles take longer: each warp
/// finds the place of one by a look at all others.
__device__ __forceinline__ void write_order(const PackedDeltaArguments& arguments, int sequence,
                                            const SequenceRows& q, const SequenceRows& kv,
                                            int lane) {
    const Packing& packing = arguments.packing;
    // Wrong arrays may count rows twice: what goes beyond the tickets is left out, and no sum
    // beyond 32 bits.
    const int most = arguments.most_key_tiles;
    const auto add = [&](int left, int right) { return min(left + right, most); };
    int place = 0;
    int before = 0;
    int all = 0;
    int longest = 0;
    for (int other = lane; other < packing.sequences; other += warp_size) {
        const SequenceRows other_q = sequence_rows(packing.q, other);
        const int tiles = min(key_tiles_of(other_q, sequence_rows(packing.kv, other)), most);
        const bool first =
            other_q.length > q.length || (other_q.length == q.length && other < sequence);
        place += first ? 1 : 0;
        before = add(before, first ? tiles : 0);
        all = add(all, tiles);
        longest = max(longest, tiles);
    }
    place = combine_warp(place, [](int left, int right) { return left + right; });
    before = combine_warp(before, add);
    all = combine_warp(all, add);
    longest = combine_warp(longest, [](int left, int right) { return max(left, right); });
    if (lane != 0) {
        return;
    }
    PackedSequence entry{};
    entry.first_tile = before;
    entry.key_tiles = min(key_tiles_of(q, kv), most - before);
    entry.sequence = sequence;
    entry.first_row = first_workspace_row(q.begin, sequence, specialisation::query_tile_rows);
    entry.q_begin = q.begin;
    entry.seqlen_q = q.length;
    entry.kv_begin = kv.begin;
    // Nobody waits for keys that have no tickets.
    entry.seqlen_kv = min(kv.length, entry.key_tiles * specialisation::key_tile_rows);
    arguments.order[place] = entry;
    if (sequence == 0) {
        PackedSequence totals{};
        totals.first_tile = all;
        totals.key_tiles = longest;
        arguments.order[packing.sequences] = totals;
    }
}

/// The maps of a sequence; none of an operand of which it has no rows. `places` is the shared
/// address of room for one of each operand.
__device__ __forceinline__ void write_maps(const PackedDeltaArguments& arguments, int sequence,
                                           const SequenceRows& q, const SequenceRows& kv,
                                           uint32_t places, int lane) {
    for (int operand = 0; operand < arguments.operands_used; ++operand) {
        const PackedOperand& whole = arguments.operands[operand];
        const SequenceRows rows = whole.of_keys != 0 ? kv : q;
        if (rows.length == 0) {
            continue;
        }
        const uint32_t place = places + operand * static_cast<int>(sizeof(TensorMap));
        store_shared(place + lane * 4, reinterpret_cast<const uint32_t*>(&whole.map)[lane]);
        __syncwarp();
        if (lane == 0) {
            tensor_map_set_address(place, static_cast<const unsigned char*>(whole.data) +
                                              rows.begin * whole.row_bytes);
            tensor_map_set_extent<1>(place, rows.length);
        }
        publish_tensor_map(arguments.maps + sequence * packed_operands + operand, place);
    }
}

/// All of a sequence, by a warp.
__device__ __forceinline__ void prepare_sequence(const PackedDeltaArguments& arguments,
                                                 int sequence, uint32_t map_places, int lane) {
    const SequenceRows q = sequence_rows(arguments.packing.q, sequence);
    const SequenceRows kv = sequence_rows(arguments.packing.kv, sequence);
    write_order(arguments, sequence, q, kv, lane);
    write_maps(arguments, sequence, q, kv, map_places, lane);
    if constexpr (specialisation::counts_progress) {
        const ProgressCounters& counters = arguments.counters;
        for (int head = lane; head < arguments.heads_kv; head += warp_size) {
            counters.added[static_cast<int64_t>(sequence) * arguments.heads_kv + head] = 0;
        }
        if (sequence == 0 && lane == 0) {
            *counters.tickets = 0;
        }
    }
}

}  // namespace backlight::kernel
