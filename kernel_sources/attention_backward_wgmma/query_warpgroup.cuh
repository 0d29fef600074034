// The query warpgroup of the wgmma kernel: dQ, and its way into the accumulator.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/turns.cuh"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "attention_backward_wgmma/shared_pointer.cuh"
#include "attention_backward_wgmma/turn_warp.cuh"
#include "attention_backward_wgmma/walk.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/wgmma.cuh"

namespace backlight::kernel {

/// How one thread adds the block's part of dQ to the accumulator.
class DqSum {
  public:
    /// Waits until the head's place is free: most often it has been for long.
    __device__ __forceinline__ DqSum(const WgmmaArguments& arguments, SharedMemory shared,
                                     const HeldTile& tile, bool adds)
        : arguments_(arguments),
          shared_(shared),
          added_(arguments.counters.added + tile.batch_head),
          place_(accumulator_of(arguments, tile) +
                 (places_by_visit
                      ? 0
                      : static_cast<int64_t>(query_tiles_of(arguments)) * tile_elements)) {
        if (deterministic && adds) {
            store_shared_pointer(shared.sum_place(), place_);
        }
        if (!packed && adds && wait_for_place(arguments, tile.batch_head)) {
            // The zeros there come before what is added.
            fence_global_before_async_proxy();
        }
    }

    /// Waits until the query tile's dQ has been added to by all key tiles that come first. By one
    /// thread, before a barrier that the one that adds passes too.
    __device__ __forceinline__ void wait_for_turn(const HeldTile& tile, const Visit& visit) const {
        const int query_start = visit.query_start();
        kernel::wait_for_turn(arguments_, tile, visit.head_in_group, query_start,
                              last_key_tile_of(arguments_, tile, query_start));
        fence_global_before_async_proxy();
    }

    /// Lets the next key tile add to a query tile, as soon as all that was added has come about.
    __device__ __forceinline__ void count_turn(TakenTurns& taken, const HeldTile& tile,
                                               const Visit& visit) const {
        bulk_wait<0>();
        taken.post(turn_counter(arguments_, tile, visit.head_in_group, visit.query_start()));
    }

    /// Sends a part of a query tile, staged in shared memory, on its way.
    __device__ __forceinline__ void add(const HeldTile& tile, const Visit& visit, int part,
                                        uint32_t staged) {
        int64_t before = 0;  // elements of the tiles before
        if constexpr (places_by_visit) {
            const int tiles =
                visit.head_in_group * query_tiles_of(arguments_, tile) + visit.query_tile;
            before = static_cast<int64_t>(tiles) * tile_elements;
        } else if (part == 0) {
            place_ -= tile_elements;
        }
        bulk_reduce_add<float>(place() + before + part * (block_q * d_q_part_columns), staged,
                               d_q_part_bytes);
        bulk_commit();
    }

    __device__ __forceinline__ void finish(const HeldTile& tile) const {
        bulk_wait<0>();
        count_global(deterministic ? arguments_.counters.added + tile.batch_head : added_);
    }

  private:
    static constexpr int tile_elements = block_q * head_dim;
    static constexpr bool places_by_visit = posts_steps || walks_up;

    /// Where turns are taken there are no registers left to hold it.
    __device__ __forceinline__ float* place() const {
        if constexpr (deterministic) {
            return load_shared_pointer<float>(shared_.sum_place());
        } else {
            return place_;
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    uint32_t* added_;
    float* place_;  // of the head; where not by visits, of the tile that was last begun
};

/// dQ of the block's keys, part by part: a part is 64 queries by 64 columns, in the order in which
/// the threads hold it (see Converter).
class QueryWarpgroup {
  public:
    __device__ __forceinline__ QueryWarpgroup(const WgmmaArguments& arguments, SharedMemory shared,
                                              int thread)
        : arguments_(arguments),
          shared_(shared),
          thread_(thread),
          lane_(thread % warp_size),
          taken_turns_(shared) {}

    __device__ __forceinline__ void work() {
        PostedWork posted(shared_);
        for (HeldWork work = posted.next(lane_); !work.is_end(); work = posted.next(lane_)) {
            if (work.has_tile()) {
                work_on(work.tile);
            }
            posted.done(lane_);
        }
        if (deterministic && thread_ == 0) {
            taken_turns_.post(nullptr);
        }
    }

  private:
    __device__ __forceinline__ void work_on(const HeldTile& tile) {
        const int kv_buffer = kv_ring_.slot;
        mbarrier_wait(shared_.k_full(kv_buffer), kv_ring_.parity);
        kv_ring_.advance();
        // Of the thread that adds.
        DqSum sum(arguments_, shared_, with_rows(tile), thread_ == 0);
        for (int step = first_step_of(arguments_, with_rows(tile)); step >= last_step_of(tile);
             --step) {
            const HeldTile tile_now = in_step(tile);
            const Visit visit = visit_of(arguments_, tile_now, step);
            mbarrier_wait(shared_.d_s_full(d_s_ring_.slot), d_s_ring_.parity);
            if (deterministic && !turns_beside_product) {
                see_to_turns(sum, tile, step);
            }
#pragma unroll
            for (int part = 0; part < d_q_parts; ++part) {
                AccumulatorRegister d_q[d_q_part_columns / 2];
                const uint32_t k_panel = shared_.k(kv_buffer) + part * KvTile::panel_bytes;
                multiply_seen(d_q, tile_now, visit, shared_.d_s(d_s_ring_.slot), k_panel);
                if (turns_beside_product && part == 0) {
                    see_to_turns(sum, tile, step);
                }
                // The buffer's last way out has begun two parts ago.
                if (thread_ == 0) {
                    bulk_wait_read<d_q_buffers - 1>();
                }
                wgmma_wait<0>();
                wgmma_settle(d_q);
                if (part == d_q_parts - 1) {
                    __syncwarp();
                    if (lane_ == 0) {
                        mbarrier_arrive(shared_.d_s_empty(d_s_ring_.slot));
                    }
                }
                named_barrier_synchronise(query_warpgroup_own, warpgroup_size);
                const uint32_t staged = shared_.d_q(d_q_buffer_);
#pragma unroll
                for (int i = 0; i < d_q_part_columns / 2; i += 4) {
                    store_shared(staged + i / 4 * (warpgroup_size * 16) + thread_ * 16,
                                 float4{d_q[i], d_q[i + 1], d_q[i + 2], d_q[i + 3]});
                }
                fence_shared_before_async_proxy();
                named_barrier_synchronise(query_warpgroup_own, warpgroup_size);
                if (thread_ == 0) {
                    sum.add(tile_now, visit, part, staged);
                }
                d_q_buffer_ ^= 1;
            }
            d_s_ring_.advance();
        }
        __syncwarp();
        if (lane_ == 0) {
            mbarrier_arrive(shared_.k_empty(kv_buffer));
        }
        if (thread_ == 0) {
            if (deterministic && first_step_of(arguments_, with_rows(tile)) >= last_step_of(tile)) {
                const HeldTile found = with_rows(tile);
                sum.count_turn(taken_turns_, found,
                               visit_of(arguments_, found, last_step_of(tile)));
            }
            sum.finish(tile);
        }
    }

    // What it takes to find the visits of grouped heads has no registers beside the product.
    static constexpr bool turns_beside_product = deterministic && !grouped_heads;

    /// Before a query tile is added to: its turn, and the count of that at the one before. Both
    /// take a while: one warp each.
    __device__ __forceinline__ void see_to_turns(const DqSum& sum, const HeldTile& tile, int step) {
        if (thread_ == warp_size) {
            const HeldTile now = in_step(tile);
            sum.wait_for_turn(now, visit_of(arguments_, now, step));
        }
        if (thread_ == 0 && step != first_step_of(arguments_, in_step(tile))) {
            const HeldTile now = in_step(tile);
            sum.count_turn(taken_turns_, now, visit_of(arguments_, now, step + 1));
        }
    }

    /// d_q = dS · K, of the 64 columns of K that lie in the panel. A key warpgroup whose keys the
    /// query tile does not see has left it out.
    __device__ __forceinline__ void multiply_seen(AccumulatorRegister (&d_q)[d_q_part_columns / 2],
                                                  const HeldTile& tile, const Visit& visit,
                                                  uint32_t d_s_tile, uint32_t k_panel) const {
        constexpr int slices_each = key_slices / key_warpgroups;
        if constexpr (posts_steps && has_edges) {
            const uint32_t seen = seen_warpgroups(arguments_, tile, visit.query_start());
            if (seen == 1) {
                multiply<0, slices_each>(d_q, d_s_tile, k_panel);
            } else if (seen == 2) {
                multiply<slices_each, slices_each>(d_q, d_s_tile, k_panel);
            } else {
                multiply<0, key_slices>(d_q, d_s_tile, k_panel);
            }
        } else if (causal && visit.query_tile == tile.first_query_tile()) {
            multiply<0, slices_each>(d_q, d_s_tile, k_panel);
        } else {
            multiply<0, key_slices>(d_q, d_s_tile, k_panel);
        }
    }

    /// Of so many slices of 16 keys, from the first one on.
    template <int first_slice, int slices>
    __device__ __forceinline__ static void multiply(
        AccumulatorRegister (&d_q)[d_q_part_columns / 2], uint32_t d_s_tile, uint32_t k_panel) {
        constexpr MatrixLayout d_s_layout =
            mn_major_layout(MatrixSwizzle::bytes_128, ScoreTile::panel_bytes);
        constexpr MatrixLayout k_layout =
            mn_major_layout(MatrixSwizzle::bytes_128, KvTile::panel_bytes);
        constexpr int step = mn_major_step(MatrixSwizzle::bytes_128);
        const MatrixDescriptor d_s(d_s_tile, d_s_layout);
        // Not held across steps, for want of registers.
        const MatrixDescriptor k(opaque(k_panel), k_layout);
        wgmma_fence();
#pragma unroll
        for (int slice = first_slice; slice < first_slice + slices; ++slice) {
            wgmma_m64k16<Element, d_q_part_columns, Major::mn, Major::mn>(
                d_q, d_s.advanced(slice * step), k.advanced(slice * step), slice > first_slice);
        }
        wgmma_commit();
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int thread_;
    int lane_;
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<d_s_buffers> d_s_ring_;
    int d_q_buffer_ = 0;
    TakenTurns taken_turns_;  // of the thread that adds
};

}  // namespace backlight::kernel
