// A warp of the register-resident mma kernel: Sᵀ, dPᵀ, dV and dK of 16 keys, and a part of the
// block's dQ.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/d_q_fragments.cuh"
#include "attention_backward_mma_resident/fragments.cuh"
#include "attention_backward_mma_resident/layout.cuh"
#include "attention_backward_mma_resident/loader.cuh"
#include "attention_backward_mma_resident/scores.cuh"
#include "attention_backward_rounds/gradient_stores.cuh"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/turns.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/reduction.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

class KeyWarp {
  public:
    __device__ __forceinline__ KeyWarp(const MmaResidentArguments& arguments, SharedMemory shared,
                                       const Tile& key_tile, int warp, int lane)
        : arguments_(arguments),
          shared_(shared),
          key_tile_(key_tile),
          loader_(arguments, shared, key_tile),
          warp_(warp),
          lane_(lane) {
        const int64_t row = first_query_of(arguments, key_tile) + d_q_row();
        d_q_place_ = accumulator_of(arguments, key_tile) + row * head_dim +
                     d_q_column() / mma_n * fragment_elements + lane * 4;
    }

    /// Asks for the first tiles.
    __device__ __forceinline__ void begin() const {
        if constexpr (packed) {
            if (!is_unseen(arguments_, key_tile_) && warp_ == 0) {
                loader_.acquire_maps();
            }
        }
        if (!is_unseen(arguments_, key_tile_) && warp_ == 0 && elect_one()) {
            loader_.load_first();
        }
    }

    __device__ __forceinline__ void work() {
        if (is_unseen(arguments_, key_tile_)) {
            wait_for_previous_kernel();
        } else {
            work_on_queries();
        }
        if constexpr (deterministic) {
            // Others wait for it, and when the next kernel may start nobody is to wait any more.
            count_last_turn();
            __syncthreads();
        }
        allow_next_kernel();
        tell_added();
        store_gradients();
    }

  private:
    // Which query tile of the diagonal it is, counted from the first; or that the mask hides
    // nothing; or that what is hidden is worked out score by score.
    static constexpr int below_diagonal = -1;
    static constexpr int at_edge = -2;
    static constexpr int tiles_on_diagonal = block_kv / block_q;
    static_assert(tiles_on_diagonal == 1 || tiles_on_diagonal == 2, "each is a call of step");

    __device__ __forceinline__ void work_on_queries() {
        mbarrier_wait(shared_.kv_full(), 0);
        const uint32_t v_address = rows_first(KvTile{shared_.v()}, first_key(), 0, lane_);
#pragma unroll
        for (int slice = 0; slice < depth_slices; ++slice) {
            ldmatrix_x4(v_[slice], KvTile::moved(v_address, 0, slice * mma_k));
        }
        if constexpr (converts_d_q && !packed) {
            // By one lane: the barrier is for all.
            if (warp_ == 0 && lane_ == 0) {
                wait_for_place(arguments_, key_tile_.batch_head);
            }
        }
        // Each warp stores dS over V.
        __syncthreads();
        // The accumulator has been zeroed by the delta kernel.
        wait_for_previous_kernel();

        if constexpr (grouped_heads) {
#pragma unroll 1
            for (int head = 0; head < heads_per_kv_head_of(arguments_); ++head) {
                work_on_head(head);
                // Past the tiles of this head that see no key after these, and of the next one
                // before them.
                const int64_t rows_visited = (queries_end_of(arguments_, key_tile_) -
                                              first_query_of(arguments_, key_tile_) + block_q - 1) /
                                             block_q * block_q;
                d_q_place_ += (padded_seqlen_q_of(arguments_, key_tile_) - rows_visited) * head_dim;
            }
        } else {
            work_on_head(0);
        }
    }

    /// The warp's first key in the tile.
    __device__ __forceinline__ int first_key() const {
        return warp_ * mma_m;
    }
    /// The thread's first key.
    __device__ __forceinline__ int thread_key() const {
        return key_tile_.kv_start + first_key() + lane_ / 4;
    }
    /// Its part of dQ.
    __device__ __forceinline__ int d_q_row() const {
        return warp_ / d_q_column_parts * d_q_rows;
    }
    __device__ __forceinline__ int d_q_column() const {
        return warp_ % d_q_column_parts * d_q_columns;
    }

    /// The query tiles of one head of the group.
    __device__ __forceinline__ void work_on_head(int head) {
        const int end = queries_end_of(arguments_, key_tile_);
        int query_start = first_query_of(arguments_, key_tile_);
        if constexpr (causal) {
            // Below the diagonal the mask hides nothing.
            step<0>(query_start, end, head);
            query_start += block_q;
            if constexpr (tiles_on_diagonal == 2) {
                step<1>(query_start, end, head);
                query_start += block_q;
            }
        }
#pragma unroll 1
        for (; query_start < end; query_start += block_q) {
            if (has_edges &&
                is_edge<block_kv>(arguments_, key_tile_, key_tile_.kv_start, query_start)) {
                step<at_edge>(query_start, end, head);
            } else {
                step<below_diagonal>(query_start, end, head);
            }
        }
    }

    /// Asks for the tile after one, which may be the first of the group's next head.
    __device__ __forceinline__ void load_next(int query_start, int end, int head) const {
        if (query_start + block_q < end && elect_one()) {
            loader_.load(tile_ + 1, head, query_start + block_q);
        }
        if constexpr (grouped_heads) {
            if (query_start + block_q >= end && head + 1 < heads_per_kv_head_of(arguments_) &&
                elect_one()) {
                loader_.load(tile_ + 1, head + 1, first_query_of(arguments_, key_tile_));
            }
        }
    }

    template <int diagonal>
    __device__ __forceinline__ void step(int query_start, int end, int head) {
        constexpr bool on_diagonal = diagonal >= 0;
        // Of 16 keys each: those of which the tile's queries see any.
        constexpr int seen_slices = on_diagonal ? (diagonal + 1) * query_slices : key_slices;
        const bool seen = seen_slices == key_slices || first_key() < seen_slices * mma_k;
        const QueryTile q_tile{shared_.q(tile_)};
        const QueryTile d_o_tile{shared_.d_o()};
        const ScoreTile d_s_tile{shared_.d_s(tile_)};

        ScoreOperands d_s;
        if (seen) {
            mbarrier_wait(shared_.q_full(tile_), SharedMemory::q_parity(tile_));
            ScoreAccumulator scores = {};
            multiply_k_by_queries<KvTile, QueryTile>(
                scores, rows_first(KvTile{shared_.k()}, first_key(), 0, lane_),
                columns_first(q_tile, 0, 0, lane_), d_k_);

            mbarrier_wait(shared_.d_o_full(), SharedMemory::parity(tile_));
            ScoreAccumulator d_p = {};
            multiply_v_by_queries<QueryTile>(d_p, v_, columns_first(d_o_tile, 0, 0, lane_), d_k_);

            ScoreOperands p;
            exponentiate<diagonal>(scores, p, query_start);
            multiply_by_operands<QueryTile>(d_v_, p, rows_first(d_o_tile, 0, 0, lane_));
            differentiate(scores, d_p, d_s, shared_.delta(), lane_);
        }
        end_reads();
        if (seen) {
            store_d_s(d_s, d_s_tile);
        }
        arrive(query_start, head);
        // One warp asks for the next tile as soon as it may; the others look later whether dS is
        // whole.
        if (warp_ == 0) {
            wait_for_others();
            load_next(query_start, end, head);
        }
        if (seen) {
            multiply_by_operands<QueryTile>(d_k_, d_s, rows_first(q_tile, 0, 0, lane_));
        }
        if (warp_ != 0) {
            wait_for_others();
        }
        if constexpr (deterministic) {
            count_turn_before(query_start, head);
        }

        DqAccumulator d_q = {};
        const int lane = d_q_addresses_held && !has_edges && !on_diagonal
                             ? lane_
                             : static_cast<int>(opaque(static_cast<uint32_t>(lane_)));
        multiply_d_s_by_k<ScoreTile, KvTile, seen_slices, 2 * mma_n>(
            d_q, columns_first(d_s_tile, 0, d_q_row(), lane),
            rows_first(KvTile{shared_.k()}, 0, d_q_column(), lane));
        add_d_q(d_q);
        ++tile_;
    }

    /// That the accumulator holds what the block's keys contribute.
    __device__ __forceinline__ void tell_added() const {
        if constexpr (converts_d_q) {
            __syncthreads();
            if (warp_ == 0 && lane_ == 0) {
                count_global(arguments_.counters.added + key_tile_.batch_head);
            }
        }
    }

    /// Between the last reads of what the next loads go over (dO, LSE and delta of this tile, Q of
    /// the one before, and V) and the arrival behind which they are asked for.
    ///
    /// The arrival alone does not keep a load behind the reads. ptxas puts products of dV after it,
    /// whose fragments of dO may then still be on their way, and TMA goes another way to shared
    /// memory than they do. Nor would a block-wide barrier: it waits for threads, not for
    /// fragments. The fence is what orders the two; ahead of the store of dS, which needs none
    /// because threads read it, it has the least to wait for.
    __device__ __forceinline__ void end_reads() const {
        fence_shared_before_async_proxy();
    }

    // Looks at turns, and counts of them, take a while each: the warps take turns in that too, so
    // that none is always the last to arrive.
    __device__ __forceinline__ bool looks_for_all() const {
        return warp_ == tile_ % warps;
    }
    __device__ __forceinline__ bool counts_for_all() const {
        return warp_ == (tile_ + warps / 2) % warps;
    }

    /// Counts the turn at the tile before, behind the exchange of this one, ahead of which all
    /// warps have added to that one: so long after, that the additions have most often come about.
    __device__ __forceinline__ void count_turn_before(int query_start, int head) const {
        if (tile_ > 0 && counts_for_all() && lane_ == 0) {
            kernel::count_turn_before(arguments_, key_tile_, head, query_start);
        }
    }
    __device__ __forceinline__ void count_last_turn() const {
        __syncthreads();
        if (warp_ == 0 && lane_ == 0) {
            kernel::count_last_turn(arguments_, key_tile_);
        }
    }

    /// Says that the warp's dS is in shared memory, and that its reads have ended; of one warp,
    /// that it is the block's turn to add to the tile's dQ.
    __device__ __forceinline__ void arrive(int query_start, int head) const {
        __syncwarp();
        if (lane_ == 0) {
            if constexpr (deterministic) {
                if (looks_for_all()) {
                    wait_for_turn(arguments_, key_tile_, head, query_start,
                                  last_key_tile_of(arguments_, key_tile_, query_start));
                }
            }
            mbarrier_arrive(shared_.exchanged());
        }
    }
    __device__ __forceinline__ void wait_for_others() const {
        mbarrier_wait(shared_.exchanged(), SharedMemory::parity(tile_));
    }

    /// Which scores of a tile are none. At an edge the thread's place in the mask is not to be held
    /// across the loop.
    template <int diagonal>
    __device__ __forceinline__ auto hidden_scores(int query_start) const {
        if constexpr (diagonal >= 0) {
            return DiagonalScores{first_key() + lane_ / 4 - diagonal * block_q - lane_ % 4 * 2};
        } else if constexpr (diagonal == at_edge) {
            const int lane = static_cast<int>(opaque(static_cast<uint32_t>(lane_)));
            return EdgeScores(arguments_, key_tile_, key_tile_.kv_start + first_key() + lane / 4,
                              query_start + lane % 4 * 2);
        } else {
            return WholeScores{};
        }
    }

    /// P, in place and as operands.
    template <int diagonal>
    __device__ __forceinline__ void exponentiate(ScoreAccumulator& scores, ScoreOperands& p,
                                                 int query_start) const {
        const float scale = arguments_.softmax_scale_log2;
        const auto hidden = hidden_scores<diagonal>(query_start);
        exponentiate_scores(scores, p, scale, shared_.lse(), lane_, hidden);
    }

    __device__ __forceinline__ void store_d_s(const ScoreOperands& d_s, ScoreTile tile) const {
        store_scores<ScoreTile>(d_s, rows_first(tile, first_key(), 0, lane_));
    }

    /// Adds to what the other blocks of the head contribute, and moves on by a tile. The
    /// accumulator lies in the order of the fragments, 512 bytes a fragment, so that a warp adds
    /// whole lines.
    __device__ __forceinline__ void add_d_q(const DqAccumulator& d_q) {
#pragma unroll
        for (int row = 0; row < d_q_row_fragments; ++row) {
#pragma unroll
            for (int column = 0; column < d_q_column_fragments; ++column) {
                const AccumulatorRegister(&sum)[4] = d_q[row][column];
                reduce_add_global(
                    d_q_place_ + row * (mma_m * head_dim) + column * fragment_elements, sum[0],
                    sum[1], sum[2], sum[3]);
            }
        }
        d_q_place_ += block_q * head_dim;
    }

    /// The block owns its rows of dK and dV: plain stores, two elements each.
    __device__ __forceinline__ void store_gradients() {
        const float scale = scale_at_store(arguments_.softmax_scale);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (partial_key_tiles &&
                thread_key() + half * 8 >= seqlen_kv_of(arguments_, key_tile_)) {
                continue;
            }
            Gradient* const d_k_row = row_of(arguments_.d_k, arguments_.d_k_strides, half * 8);
            Gradient* const d_v_row = row_of(arguments_.d_v, arguments_.d_v_strides, half * 8);
            if constexpr (specialisation::accumulates_gradients) {
                add_row<columns_qk>(d_k_, half, d_k_row, arguments_.softmax_scale);
                add_row<columns_v>(d_v_, half, d_v_row, 1);
            }
#pragma unroll
            for (int fragment = 0; fragment < gradient_fragments; ++fragment) {
                if (fragment * mma_n < columns_qk) {
                    store_two(d_k_row + fragment * mma_n, d_k_[fragment][half * 2] * scale,
                              d_k_[fragment][half * 2 + 1] * scale);
                }
                if (fragment * mma_n < columns_v) {
                    store_two(d_v_row + fragment * mma_n, d_v_[fragment][half * 2],
                              d_v_[fragment][half * 2 + 1]);
                }
            }
        }
    }
    /// The thread's first element of the row that lies so far below its first one.
    __device__ __forceinline__ Gradient* row_of(void* tensor, const Strides& strides,
                                                int below) const {
        const int64_t row = thread_key() + below + (packed ? key_tile_.kv_begin : 0);
        return static_cast<Gradient*>(tensor) + (packed ? 0 : key_tile_.batch * strides.batch) +
               key_tile_.head * strides.head + row * strides.seqlen + lane_ % 4 * 2;
    }

    const MmaResidentArguments& arguments_;
    SharedMemory shared_;
    Tile key_tile_;
    Loader<SharedMemory> loader_;
    int warp_;
    int lane_;
    float* d_q_place_;  // of the thread's part of the tile's dQ
    int tile_ = 0;      // counts from the first that the block visits
    VOperands v_;
    GradientAccumulator d_k_ = {};
    GradientAccumulator d_v_ = {};
};

}  // namespace backlight::kernel
