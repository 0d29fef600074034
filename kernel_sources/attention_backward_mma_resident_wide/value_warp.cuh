// The warp of a pair that has dV: Sᵀ, P and dV of 16 keys.
#pragma once

#include "attention_backward_mma_resident/loader.cuh"
#include "attention_backward_mma_resident/scores.cuh"
#include "attention_backward_mma_resident_wide/pair_warp.cuh"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/turns.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

class ValueWarp : public PairWarp {
  public:
    __device__ __forceinline__ ValueWarp(const MmaResidentArguments& arguments, SharedMemory shared,
                                         const Tile& key_tile, int warp, int lane)
        : PairWarp(arguments, shared, key_tile, warp, lane), loader_(arguments, shared, key_tile) {}

    /// Asks for the first tiles.
    __device__ __forceinline__ void begin() const {
        if (packed && loads()) {
            loader_.acquire_maps();
        }
        if (loads() && elect_one()) {
            loader_.load_first();
        }
    }

    __device__ __forceinline__ void work() {
        for_each_query_tile(
            [&](int query_start, int end, int head) { step(query_start, end, head); });
    }

    __device__ __forceinline__ void store() {
        store_gradient<columns_v>(d_v_, arguments_.d_v, arguments_.d_v_strides, 1.0f);
    }

  private:
    __device__ __forceinline__ void step(int query_start, int end, int head) {
        mbarrier_wait(shared_.q_full(tile_), SharedMemory::q_parity(tile_));
        ScoreOperands p;
        {
            ScoreAccumulator scores = {};
            multiply_k_by_queries<KTile, QTile>(
                scores, rows_first(KTile{shared_.k()}, first_key(), 0, lane_),
                columns_first(QTile{shared_.q(tile_)}, 0, 0, lane_), d_v_);
            exponentiate(scores, p, query_start);
            hand_over(scores);
        }
        if constexpr (deterministic) {
            look_for_turn(query_start, head);
        }
        mbarrier_wait(shared_.d_o_full(tile_), SharedMemory::d_o_parity(tile_));
        const uint32_t d_o_address = rows_first(DOTile{shared_.d_o(tile_)}, 0, 0, lane_);
        multiply_by_operands<DOTile, 0, query_slices / 2>(d_v_, p, d_o_address);
        // By now the key warps will have stored dS. They have done so with P of this tile, from
        // warps that were done with dO of the one before.
        if (loads()) {
            wait_for_d_s();
            load_next(query_start, end, head, [&](int tile, int next_head, int next_start) {
                loader_.load_q_and_lse(tile, next_head, next_start);
                if constexpr (d_o_stages > 1) {
                    loader_.load_d_o_and_delta(tile, next_head, next_start);
                }
            });
        }
        multiply_by_operands<DOTile, query_slices / 2, query_slices>(d_v_, p, d_o_address);
        if constexpr (d_o_stages == 1) {
            end_reads();
            arrive(shared_.d_o_read());
        }
        if (!loads()) {
            wait_for_d_s();
        }
        if constexpr (deterministic) {
            count_turn_before(query_start, head);
        }
        if constexpr (d_o_stages == 1) {
            // The key warps have been done with dO since they stored dS.
            if (loads()) {
                mbarrier_wait(shared_.d_o_read(), SharedMemory::parity(tile_));
                load_next(query_start, end, head, [&](int tile, int next_head, int next_start) {
                    loader_.load_d_o_and_delta(tile, next_head, next_start);
                });
            }
        }
        add_d_q();
    }

    // Turns are looked at and counted by value warps, which have registers for it; by each in turn,
    // so that none is always the last.

    /// One warp lets all add to dQ of the tile when it is the block's turn: they wait for it where
    /// they wait for dS.
    __device__ __forceinline__ void look_for_turn(int query_start, int head) const {
        if (pair() != tile_ % pairs) {
            return;
        }
        if (lane_ == 0) {
            wait_for_turn(arguments_, key_tile_, head, query_start,
                          last_key_tile_of(arguments_, key_tile_, query_start));
        }
        arrive(shared_.exchanged());
    }
    /// Counts the turn at the tile before, behind dS of this one: each key warp has stored it with
    /// P from a warp that had added to the tile before, as it had itself.
    __device__ __forceinline__ void count_turn_before(int query_start, int head) const {
        if (tile_ > 0 && pair() == (tile_ + pairs / 2) % pairs && lane_ == 0) {
            kernel::count_turn_before(arguments_, key_tile_, head, query_start);
        }
    }

    /// One warp asks for all tiles: a value warp, since key warps have no register to spare.
    __device__ __forceinline__ bool loads() const { return pair() == 0; }

    /// Calls `load(tile, head, query_start)`, in one lane, of the tile after one, which may be the
    /// first of the group's next head.
    template <typename Load>
    __device__ __forceinline__ void load_next(int query_start, int end, int head,
                                              const Load& load) const {
        if (query_start + block_q < end) {
            if (elect_one()) {
                load(tile_ + 1, head, query_start + block_q);
            }
        } else if (grouped_heads && head + 1 < heads_per_kv_head_of(arguments_)) {
            if (elect_one()) {
                load(tile_ + 1, head + 1, first_query_of(arguments_, key_tile_));
            }
        }
    }

    /// P, in place and as operands.
    __device__ __forceinline__ void exponentiate(ScoreAccumulator& scores, ScoreOperands& p,
                                                 int query_start) const {
        const float scale = arguments_.softmax_scale_log2;
        if (has_edges &&
            is_edge<block_kv>(arguments_, key_tile_, key_tile_.kv_start, query_start)) {
            const int lane = static_cast<int>(opaque(static_cast<uint32_t>(lane_)));
            const EdgeScores hidden(arguments_, key_tile_,
                                    key_tile_.kv_start + first_key() + lane / 4,
                                    query_start + lane % 4 * 2);
            exponentiate_scores(scores, p, scale, shared_.lse(), lane_, hidden);
        } else {
            exponentiate_scores(scores, p, scale, shared_.lse(), lane_, WholeScores{});
        }
    }

    /// P to the pair's other warp, which has read that of the tile before: it has stored dS of it.
    __device__ __forceinline__ void hand_over(const ScoreAccumulator& p) const {
        // Of LSE of this tile, and of dO of the one before.
        end_reads();
#pragma unroll
        for (int fragment = 0; fragment < score_fragments; ++fragment) {
            store_shared(shared_.p(pair(), lane_) + fragment * 512,
                         float4{p[fragment][0], p[fragment][1], p[fragment][2], p[fragment][3]});
        }
        named_barrier_arrive(pair_barrier(pair()), pair_threads);
    }

    Loader<SharedMemory> loader_;
    AccumulatorRegister d_v_[tile_columns_v / mma_n][4] = {};
};

}  // namespace backlight::kernel
