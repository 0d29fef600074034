// The loader of the wgmma kernel, and the work that it posts for the other roles.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

/// Copies `Tile::panels` panels, from row `row` of the head's matrix on.
template <typename SharedTile>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap& map, int row,
                                          const Tile& tile, uint32_t barrier) {
#pragma unroll
    for (int panel = 0; panel < SharedTile::panels; ++panel) {
        tma_load_4d(destination + panel * SharedTile::panel_bytes, &map,
                    panel * SharedTile::panel_columns, row, tile.head, tile.batch, barrier);
    }
}

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
            const Work work(arguments_, specialisation::heads_per_group,
                            static_cast<int>(take_ticket(arguments_.counters.tickets)));
            post(work);
            if (work.is_end()) {
                return;
            }
            if (work.has_tile()) {
                load(work.tile);
            }
        }
    }

  private:
    /// For the other roles to read.
    __device__ __forceinline__ void post(const Work& work) {
        const int slot = work_ring_.slot;
        mbarrier_wait(shared_.work_empty(slot), work_ring_.parity ^ 1);
        const auto word = [](int value) { return static_cast<uint32_t>(value); };
        store_shared(shared_.work(slot), uint4{word(work.tile.batch_head), word(work.tile.batch),
                                               word(work.tile.head), word(work.tile.kv_start)});
        store_shared(shared_.work(slot) + 16,
                     uint4{word(work.conversion.batch_head), word(work.conversion.first_query_tile),
                           word(work.conversion.query_tiles), 0});
        mbarrier_arrive(shared_.work_full(slot));
        work_ring_.advance();
    }

    __device__ __forceinline__ void load(const Tile& tile) {
        const int buffer = kv_ring_.slot;
        const int kv_parity = kv_ring_.parity;
        kv_ring_.advance();
        mbarrier_wait(shared_.k_empty(buffer), kv_parity ^ 1);
        mbarrier_arrive_expect_bytes(shared_.k_full(buffer), KvTile::bytes);
        load_tile<KvTile>(shared_.k(buffer), arguments_.k, tile.kv_start, tile,
                          shared_.k_full(buffer));
        const int query_tiles = query_tiles_of(arguments_);
        const int64_t head_row = static_cast<int64_t>(tile.batch_head) * query_tiles * block_q;
        bool v_loaded = false;
        for (int query_tile = query_tiles - 1; query_tile >= tile.first_query_tile();
             --query_tile) {
            const int query_start = query_tile * block_q;
            const int stage = query_ring_.slot;
            const int parity = query_ring_.parity;
            query_ring_.advance();
            mbarrier_wait(shared_.q_empty(stage), parity ^ 1);
            mbarrier_arrive_expect_bytes(shared_.q_full(stage),
                                         QueryTile::bytes + statistics_bytes);
            load_tile<QueryTile>(shared_.q(stage), arguments_.q, query_start, tile,
                                 shared_.q_full(stage));
            bulk_load(shared_.lse(stage), arguments_.negated_lse_log2 + head_row + query_start,
                      statistics_bytes, shared_.q_full(stage));
            if (!v_loaded) {
                v_loaded = true;
                mbarrier_wait(shared_.v_empty(buffer), kv_parity ^ 1);
                mbarrier_arrive_expect_bytes(shared_.v_full(buffer), KvTile::bytes);
                load_tile<KvTile>(shared_.v(buffer), arguments_.v, tile.kv_start, tile,
                                  shared_.v_full(buffer));
            }
            mbarrier_wait(shared_.d_o_empty(stage), parity ^ 1);
            mbarrier_arrive_expect_bytes(shared_.d_o_full(stage),
                                         QueryTile::bytes + statistics_bytes);
            load_tile<QueryTile>(shared_.d_o(stage), arguments_.d_o, query_start, tile,
                                 shared_.d_o_full(stage));
            bulk_load(shared_.delta(stage), arguments_.negated_delta + head_row + query_start,
                      statistics_bytes, shared_.d_o_full(stage));
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    RingPosition<work_slots> work_ring_;
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<stages> query_ring_;
};

/// What the loader has posted, as a warp of another role sees it.
class PostedWork {
  public:
    __device__ __forceinline__ explicit PostedWork(SharedMemory shared) : shared_(shared) {}

    /// The next piece of work.
    __device__ __forceinline__ Work next(int lane) {
        const int slot = ring_.slot();
        mbarrier_wait(shared_.work_full(slot), ring_.parity());
        uint4 tile{};
        uint4 conversion{};
        // One lane for all: who reads is who tells that it has been read.
        if (lane == 0) {
            tile = load_shared<uint4>(shared_.work(slot));
            conversion = load_shared<uint4>(shared_.work(slot) + 16);
        }
        // None may still wait for a phase that can now pass.
        __syncwarp();
        if (lane == 0) {
            mbarrier_arrive(shared_.work_empty(slot));
        }
        ring_.advance();
        const auto number = [](uint32_t word) {
            return static_cast<int>(__shfl_sync(0xffffffffu, word, 0));
        };
        Work work;
        work.tile = {number(tile.y), number(tile.z), number(tile.x), number(tile.w)};
        work.conversion = {number(conversion.x), number(conversion.y), number(conversion.z)};
        return work;
    }

  private:
    SharedMemory shared_;
    CompactRingPosition<work_slots> ring_;
};

}  // namespace backlight::kernel
