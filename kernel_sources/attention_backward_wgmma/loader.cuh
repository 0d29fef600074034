// The loader of the wgmma kernel, and the work that it posts for the other roles.
#pragma once

#include "arguments/attention_backward.h"
#include "arguments/packing.h"
#include "attention_backward_packing/work.cuh"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/walk.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tensor_map.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

/// Copies `Tile::panels` panels, from row `row` of the head's matrix on.
template <typename SharedTile>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap& map, int row,
                                          int head, int batch, uint32_t barrier) {
#pragma unroll
    for (int panel = 0; panel < SharedTile::panels; ++panel) {
        tma_load_4d(destination + panel * SharedTile::panel_bytes, &map,
                    panel * SharedTile::panel_columns, row, head, batch, barrier);
    }
}

/// The map of an operand of a tile's: its own sequence's where sequences are packed.
__device__ __forceinline__ const TensorMap& map_of(const WgmmaArguments& arguments,
                                                   const TensorMap& whole,
                                                   PackedOperandIndex operand, int sequence) {
    if constexpr (packed) {
        return arguments.packed.maps[sequence * packed_operands + operand];
    } else {
        return whole;
    }
}
/// The same for a thread that stores.
__device__ __forceinline__ const TensorMap& acquired_map_of(const WgmmaArguments& arguments,
                                                            const TensorMap& whole,
                                                            PackedOperandIndex operand,
                                                            int sequence) {
    const TensorMap& map = map_of(arguments, whole, operand, sequence);
    if constexpr (packed) {
        acquire_tensor_map(&map);
    }
    return map;
}

/// The loader's positions in its rings.
struct LoaderRings {
    RingPosition<work_slots> work;
    RingPosition<kv_buffers> kv;
    RingPosition<stages> queries;

    __device__ __forceinline__ int work_slot() const { return work.slot; }
    __device__ __forceinline__ int work_parity() const { return work.parity; }
    __device__ __forceinline__ void advance_work() { work.advance(); }
    __device__ __forceinline__ int kv_slot() const { return kv.slot; }
    __device__ __forceinline__ int kv_parity() const { return kv.parity; }
    __device__ __forceinline__ void advance_kv() { kv.advance(); }
    __device__ __forceinline__ int query_stage() const { return queries.slot; }
    __device__ __forceinline__ int query_parity() const { return queries.parity; }
    __device__ __forceinline__ void advance_queries() { queries.advance(); }
};

/// The same in two registers, where there are no more.
class CompactLoaderRings {
  public:
    __device__ __forceinline__ int work_slot() const { return work() % work_slots; }
    __device__ __forceinline__ int work_parity() const { return work() / work_slots; }
    __device__ __forceinline__ void advance_work() {
        positions_ += work() == 2 * work_slots - 1 ? 1 - 2 * work_slots : 1;
    }
    __device__ __forceinline__ int kv_slot() const { return kv() % kv_buffers; }
    __device__ __forceinline__ int kv_parity() const { return kv() / kv_buffers % 2; }
    __device__ __forceinline__ void advance_kv() { positions_ += kv_unit; }
    __device__ __forceinline__ int query_stage() const { return queries_.slot(); }
    __device__ __forceinline__ int query_parity() const { return queries_.parity(); }
    __device__ __forceinline__ void advance_queries() { queries_.advance(); }

  private:
    // Of K and V uncounted: it comes round with the bits.
    static constexpr uint32_t kv_unit = 16;
    static_assert(2 * work_slots <= kv_unit && (kv_buffers & (kv_buffers - 1)) == 0);

    __device__ __forceinline__ int work() const { return static_cast<int>(positions_ % kv_unit); }
    __device__ __forceinline__ int kv() const {
        return static_cast<int>(positions_ / kv_unit % (2 * kv_buffers));
    }

    uint32_t positions_ = 0;  // in the rings of work and of K and V
    CompactRingPosition<stages> queries_;
};

template <bool compact>
struct ChosenLoaderRings {
    using Type = LoaderRings;
};
template <>
struct ChosenLoaderRings<true> {
    using Type = CompactLoaderRings;
};

/// One thread: takes tickets, tells the others of them, and brings what they need.
class Loader {
  public:
    __device__ __forceinline__ Loader(const WgmmaArguments& arguments, SharedMemory shared)
        : arguments_(arguments), shared_(shared) {}

    __device__ __forceinline__ void work() {
        // The counters, LSE and delta come from the delta kernel.
        wait_for_previous_kernel();
        while (true) {
            // Not before the loads of the last one: who holds a ticket keeps others waiting.
            if constexpr (packed) {
                const HeldTile tile =
                    post_packed(static_cast<int>(take_ticket(arguments_.counters.tickets)));
                if (tile.batch_head == Work::end) {
                    return;
                }
                if (tile.batch_head >= 0) {
                    acquire_maps(tile);
                    load_and_post(tile);
                }
            } else {
                const Work work(arguments_, specialisation::heads_per_group,
                                static_cast<int>(take_ticket(arguments_.counters.tickets)));
                post(work);
                if (work.is_end()) {
                    return;
                }
                if (work.has_tile()) {
                    if constexpr (posts_steps) {
                        load_and_post(work.tile);
                    } else {
                        load(work.tile);
                    }
                }
            }
        }
    }

  private:
    /// For the other roles to read.
    __device__ __forceinline__ void post(const Work& work) {
        const int slot = rings_.work_slot();
        mbarrier_wait(shared_.work_empty(slot), rings_.work_parity() ^ 1);
        const auto word = [](int value) { return static_cast<uint32_t>(value); };
        store_shared(shared_.work(slot), uint4{word(work.tile.batch_head), word(work.tile.batch),
                                               word(work.tile.head), word(work.tile.kv_start)});
        store_shared(shared_.work(slot) + 16,
                     uint4{word(work.conversion.batch_head), word(work.conversion.first_query_tile),
                           word(work.conversion.query_tiles), 0});
        mbarrier_arrive(shared_.work_full(slot));
        rings_.advance_work();
    }

    /// The same where sequences are packed, of a ticket. What it stands for stays in the slot.
    __device__ __forceinline__ HeldTile post_packed(int ticket) {
        const int slot = rings_.work_slot();
        mbarrier_wait(shared_.work_empty(slot), rings_.work_parity() ^ 1);
        const uint32_t place = shared_.work(slot);
        const int tickets = packed_tile_tickets(arguments_) + packed_lag(arguments_);
        // Unsigned: also what was drawn from a counter that nobody has set.
        if (static_cast<uint32_t>(ticket) >= static_cast<uint32_t>(tickets)) {
            store_packed_work(place, Work::end, 0, 0, 0, 0, 0, 0, 0);
            store_packed_work(place + tile_work_bytes, Work::nothing, 0, 0, 0, 0, 0, 0, 0);
        } else {
            find_packed_tile(arguments_, ticket, place, true, SearchAlone{});
            find_packed_conversion(arguments_, ticket, place + tile_work_bytes, true,
                                   SearchAlone{});
        }
        mbarrier_arrive(shared_.work_full(slot));
        rings_.advance_work();
        const uint4 words = load_shared<uint4>(place);
        HeldTile tile;
        tile.batch_head = static_cast<int>(words.x);
        tile.batch = static_cast<int>(words.y);
        tile.head = static_cast<int>(words.z);
        tile.kv_start = static_cast<int>(words.w);
        if constexpr (packed) {
            set_place(tile, place + 16);
        }
        return tile;
    }

    __device__ __forceinline__ void acquire_maps(const HeldTile& tile) const {
        if (tile.batch >= 0) {
            for (int operand = 0; operand < packed_inputs; ++operand) {
                acquire_tensor_map(arguments_.packed.maps + tile.batch * packed_operands + operand);
            }
        }
    }

    __device__ __forceinline__ void load(const HeldTile& tile) {
        const int buffer = rings_.kv_slot();
        const int kv_parity = rings_.kv_parity();
        rings_.advance_kv();
        mbarrier_wait(shared_.k_empty(buffer), kv_parity ^ 1);
        load_keys(shared_.k(buffer), arguments_.k, packed_k, tile, shared_.k_full(buffer));
        const int64_t first_row = first_row_of(tile, 0);
        bool v_loaded = false;
        for (int step = first_step_of(arguments_, tile); step >= last_step_of(tile); --step) {
            const int query_start = visit_of(arguments_, tile, step).query_start();
            const int stage = rings_.query_stage();
            const int parity = rings_.query_parity();
            rings_.advance_queries();
            mbarrier_wait(shared_.q_empty(stage), parity ^ 1);
            load_q(stage, tile, tile.head, first_row, query_start);
            if (!v_loaded) {
                v_loaded = true;
                mbarrier_wait(shared_.v_empty(buffer), kv_parity ^ 1);
                load_keys(shared_.v(buffer), arguments_.v, packed_v, tile, shared_.v_full(buffer));
            }
            mbarrier_wait(shared_.d_o_empty(stage), parity ^ 1);
            load_d_o(stage, tile, tile.head, first_row, query_start);
        }
    }

    /// The same where steps are posted. All that can be worked out anew in a step is, for want of
    /// registers.
    __device__ __forceinline__ void load_and_post(const HeldTile& tile) {
        mbarrier_wait(shared_.k_empty(rings_.kv_slot()), rings_.kv_parity() ^ 1);
        if (is_unseen(arguments_, with_rows(tile))) {
            // The others take nothing from there, and store zeros.
            mbarrier_arrive(shared_.k_full(rings_.kv_slot()));
            mbarrier_wait(shared_.v_empty(rings_.kv_slot()), rings_.kv_parity() ^ 1);
            mbarrier_arrive(shared_.v_full(rings_.kv_slot()));
        } else {
            load_keys(shared_.k(rings_.kv_slot()), arguments_.k, packed_k, tile,
                      shared_.k_full(rings_.kv_slot()));
            for (int step = first_step_of(arguments_, with_rows(tile)); step >= last_step_of(tile);
                 --step) {
                load_and_post_step(in_step(tile), step);
                rings_.advance_queries();
            }
        }
        rings_.advance_kv();
    }

    __device__ __forceinline__ void load_and_post_step(const HeldTile& tile, int step) const {
        const Visit visit = visit_of(arguments_, tile, step);
        const int query_start = visit.query_start();
        const int head = query_head(tile.head, visit.head_in_group);
        const int stage = rings_.query_stage();
        mbarrier_wait(shared_.q_empty(stage), rings_.query_parity() ^ 1);
        Step::of(arguments_, tile, step, query_start)
            .store(shared_.step(stage), EdgeScores(arguments_, tile, tile.kv_start, query_start));
        const int64_t first_row = first_row_of(tile, visit.head_in_group);
        load_q(stage, tile, head, first_row, query_start);
        if (step == first_step_of(arguments_, in_step(tile))) {
            const int buffer = rings_.kv_slot();
            mbarrier_wait(shared_.v_empty(buffer), rings_.kv_parity() ^ 1);
            load_keys(shared_.v(buffer), arguments_.v, packed_v, tile, shared_.v_full(buffer));
        }
        mbarrier_wait(shared_.d_o_empty(stage), rings_.query_parity() ^ 1);
        load_d_o(stage, tile, head, first_row, query_start);
    }

    // A query tile, with the statistics that go with it.

    __device__ __forceinline__ void load_q(int stage, const HeldTile& tile, int head,
                                           int64_t first_row, int query_start) const {
        mbarrier_arrive_expect_bytes(shared_.q_full(stage), QueryTile::bytes + statistics_bytes);
        load_tile<QueryTile>(shared_.q(stage),
                             map_of(arguments_, arguments_.q, packed_q, tile.batch), query_start,
                             head, packed ? 0 : tile.batch, shared_.q_full(stage));
        bulk_load(shared_.lse(stage), arguments_.negated_lse_log2 + first_row + query_start,
                  statistics_bytes, shared_.q_full(stage));
    }
    __device__ __forceinline__ void load_d_o(int stage, const HeldTile& tile, int head,
                                             int64_t first_row, int query_start) const {
        mbarrier_arrive_expect_bytes(shared_.d_o_full(stage), QueryTile::bytes + statistics_bytes);
        load_tile<QueryTile>(shared_.d_o(stage),
                             map_of(arguments_, arguments_.d_o, packed_d_o, tile.batch),
                             query_start, head, packed ? 0 : tile.batch, shared_.d_o_full(stage));
        bulk_load(shared_.delta(stage), arguments_.negated_delta + first_row + query_start,
                  statistics_bytes, shared_.d_o_full(stage));
    }

    /// The tile's rows of K or V.
    __device__ __forceinline__ void load_keys(uint32_t destination, const TensorMap& whole,
                                              PackedOperandIndex operand, const HeldTile& tile,
                                              uint32_t barrier) const {
        mbarrier_arrive_expect_bytes(barrier, KvTile::bytes);
        load_tile<KvTile>(destination, map_of(arguments_, whole, operand, tile.batch),
                          tile.kv_start, tile.head, packed ? 0 : tile.batch, barrier);
    }

    /// Of one of keys, or all of them up to it, those of queries.
    __device__ __forceinline__ int query_head(int kv_head, int head_in_group) const {
        return kv_head * heads_per_kv_head_of(arguments_) + head_in_group;
    }
    /// Of the head's statistics.
    __device__ __forceinline__ int64_t first_row_of(const HeldTile& tile, int head_in_group) const {
        if constexpr (packed) {
            const HeldTile now = with_rows(tile);
            return kernel::first_row_of(arguments_, now) +
                   static_cast<int64_t>(head_in_group) * padded_seqlen_q_of(arguments_, now);
        }
        const int batch_head =
            posts_steps ? tile.batch * arguments_.heads + tile.head : tile.batch_head;
        return static_cast<int64_t>(query_head(batch_head, head_in_group)) *
               query_tiles_of(arguments_) * block_q;
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    ChosenLoaderRings<posts_steps>::Type rings_;
};

/// What the loader has posted, as a warp of another role sees it.
class PostedWork {
  public:
    __device__ __forceinline__ explicit PostedWork(SharedMemory shared) : shared_(shared) {}

    /// The next piece of work.
    __device__ __forceinline__ HeldWork next(int lane) {
        const int slot = ring_.slot();
        mbarrier_wait(shared_.work_full(slot), ring_.parity());
        uint4 tile{};
        uint4 conversion{};
        // One lane for all: who reads is who tells that it has been read.
        if (lane == 0) {
            tile = load_shared<uint4>(shared_.work(slot));
            conversion = load_shared<uint4>(shared_.work(slot) + tile_work_bytes);
        }
        if constexpr (!packed) {
            // None may still wait for a phase that can now pass.
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(shared_.work_empty(slot));
            }
            ring_.advance();
        }
        const auto number = [](uint32_t word) {
            return static_cast<int>(__shfl_sync(0xffffffffu, word, 0));
        };
        HeldWork work;
        work.tile = {number(tile.y), number(tile.z), number(tile.x), number(tile.w)};
        work.conversion = {number(conversion.x), number(conversion.y), number(conversion.z)};
        if constexpr (packed) {
            set_place(work.tile, shared_.work(slot) + 16);
            set_place(work.conversion, shared_.work(slot) + tile_work_bytes + 16);
            work.conversion.seqlen_q = number(conversion.w);
        }
        return work;
    }

    /// That the piece has been worked on. Where sequences are packed it tells more of itself until
    /// then.
    __device__ __forceinline__ void done(int lane) {
        if constexpr (packed) {
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(shared_.work_empty(ring_.slot()));
            }
            ring_.advance();
        }
    }

  private:
    SharedMemory shared_;
    CompactRingPosition<work_slots> ring_;
};

}  // namespace backlight::kernel
