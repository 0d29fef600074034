// What both warps of a pair of the mma kernel for wide heads do: the way over the queries, and a
// part of the block's dQ.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/d_q_fragments.cuh"
#include "attention_backward_mma_resident/fragments.cuh"
#include "attention_backward_mma_resident_wide/layout.cuh"
#include "attention_backward_rounds/gradient_stores.cuh"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/turns.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/reduction.cuh"
#include "primitives/scheduling.cuh"

namespace backlight::kernel {

class PairWarp {
  public:
    __device__ __forceinline__ PairWarp(const MmaResidentArguments& arguments, SharedMemory shared,
                                        const Tile& key_tile, int warp, int lane)
        : arguments_(arguments), shared_(shared), key_tile_(key_tile), warp_(warp), lane_(lane) {
        const int64_t row = first_query_of(arguments, key_tile) + d_q_row();
        d_q_place_ = accumulator_of(arguments, key_tile) + row * head_dim +
                     d_q_column() / mma_n * fragment_elements + lane * 4;
    }

    /// By one thread, when all have added to all query tiles.
    __device__ __forceinline__ void count_last_turn() const {
        if (warp_ == 0 && lane_ == 0) {
            kernel::count_last_turn(arguments_, key_tile_);
        }
    }

  protected:
    __device__ __forceinline__ int pair() const { return warp() % pairs; }
    /// The pair's first key in the tile.
    __device__ __forceinline__ int first_key() const { return pair() * mma_m; }

    // For what is to be worked out anew in each tile: few registers are left across the loop.
    __device__ __forceinline__ int lane() const {
        return static_cast<int>(opaque(static_cast<uint32_t>(lane_)));
    }
    __device__ __forceinline__ int tile() const {
        return static_cast<int>(opaque(static_cast<uint32_t>(tile_)));
    }
    __device__ __forceinline__ int warp() const {
        return static_cast<int>(opaque(static_cast<uint32_t>(warp_)));
    }

    /// Calls `step(query_start, end, head)` for each query tile that sees any of the keys, of each
    /// head of the group.
    template <typename Step>
    __device__ __forceinline__ void for_each_query_tile(const Step& step) {
        const int heads = grouped_heads ? heads_per_kv_head_of(arguments_) : 1;
#pragma unroll 1
        for (int head = 0; head < heads; ++head) {
            const int end = queries_end_of(arguments_, key_tile_);
#pragma unroll 1
            for (int query_start = first_query_of(arguments_, key_tile_); query_start < end;
                 query_start += block_q) {
                step(query_start, end, head);
                ++tile_;
            }
            if constexpr (grouped_heads) {
                // Past the tiles of this head that see no key after these, and of the next one
                // before them.
                const int64_t rows_visited =
                    (end - first_query_of(arguments_, key_tile_) + block_q - 1) / block_q * block_q;
                d_q_place_ += (padded_seqlen_q_of(arguments_, key_tile_) - rows_visited) * head_dim;
            }
        }
    }

    /// Between the last reads of what a later load goes over and the barrier behind which it is
    /// asked for: KeyWarp::end_reads of the kernel for narrow heads says why a barrier alone is not
    /// enough.
    __device__ __forceinline__ static void end_reads() {
        fence_shared_before_async_proxy();
    }

    __device__ __forceinline__ void arrive(uint32_t barrier) const {
        __syncwarp();
        if (lane_ == 0) {
            mbarrier_arrive(barrier);
        }
    }
    /// Until dS of all keys is in shared memory.
    __device__ __forceinline__ void wait_for_d_s() const {
        mbarrier_wait(shared_.exchanged(), SharedMemory::parity(tile()));
    }

    /// dQ = dS K, the warp's part of it, added to what the other blocks of the head contribute.
    __device__ __forceinline__ void add_d_q() {
        const uint32_t d_s_address =
            columns_first(ScoreTile{shared_.d_s(tile())}, 0, d_q_row(), lane());
        const uint32_t k_address = rows_first(KTile{shared_.k()}, 0, d_q_column(), lane());
#pragma unroll
        for (int first = 0; first < d_q_panels; first += d_q_panels_at_once) {
            AccumulatorRegister d_q[1][2 * d_q_panels_at_once][4] = {};
            multiply_d_s_by_k<ScoreTile, KTile, key_slices, 64>(
                d_q, d_s_address, KTile::moved(k_address, 0, first * 64));
#pragma unroll
            for (int column = 0; column < 2 * d_q_panels_at_once; ++column) {
                const AccumulatorRegister(&sum)[4] = d_q[0][column];
                const int fragment = (first + column / 2) * (64 / mma_n) + column % 2;
                reduce_add_global(d_q_place_ + fragment * fragment_elements, sum[0], sum[1], sum[2],
                                  sum[3]);
            }
        }
        d_q_place_ += block_q * head_dim;
    }

    /// The pair owns its rows of dK and dV: plain stores, two elements each.
    template <int columns, int fragments>
    __device__ __forceinline__ void store_gradient(AccumulatorRegister (&sums)[fragments][4],
                                                   void* tensor, const Strides& strides,
                                                   float scale) const {
        const int key = key_tile_.kv_start + first_key() + lane_ / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t row = key + half * 8;
            if (partial_key_tiles && row >= seqlen_kv_of(arguments_, key_tile_)) {
                continue;
            }
            Gradient* const to =
                static_cast<Gradient*>(tensor) +
                (packed ? key_tile_.kv_begin * strides.seqlen : key_tile_.batch * strides.batch) +
                key_tile_.head * strides.head + row * strides.seqlen + lane_ % 4 * 2;
            if constexpr (specialisation::accumulates_gradients) {
                add_row<columns>(sums, half, to, scale);
            }
#pragma unroll
            for (int fragment = 0; fragment < fragments; ++fragment) {
                if (fragment * mma_n < columns) {
                    store_two(to + fragment * mma_n,
                              sums[fragment][half * 2] * scale_at_store(scale),
                              sums[fragment][half * 2 + 1] * scale_at_store(scale));
                }
            }
        }
    }

  private:
    /// Its part of dQ.
    __device__ __forceinline__ int d_q_row() const {
        return warp() / d_q_column_parts * mma_m;
    }
    __device__ __forceinline__ int d_q_column() const {
        return warp() % d_q_column_parts * (2 * mma_n);
    }

  protected:
    const MmaResidentArguments& arguments_;
    SharedMemory shared_;
    Tile key_tile_;
    int warp_;
    int lane_;
    float* d_q_place_;  // of the thread's part of the tile's dQ
    int tile_ = 0;      // counts from the first that the block visits
};

}  // namespace backlight::kernel
