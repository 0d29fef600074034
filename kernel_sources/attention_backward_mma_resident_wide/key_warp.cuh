// The warp of a pair that has dK: dPᵀ, dS and dK of 16 keys.
#pragma once

#include "attention_backward_mma_resident/scores.cuh"
#include "attention_backward_mma_resident_wide/pair_warp.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/shared_memory.cuh"

namespace backlight::kernel {

class KeyWarp : public PairWarp {
  public:
    using PairWarp::PairWarp;

    /// V to registers, through which it passes once.
    __device__ __forceinline__ void take_v() {
        const uint32_t v_address = rows_first(VTile{shared_.v()}, first_key(), 0, lane_);
#pragma unroll
        for (int slice = 0; slice < slices_of<VTile>; ++slice) {
            ldmatrix_x4(v_[slice], VTile::moved(v_address, 0, slice * mma_k));
        }
    }

    __device__ __forceinline__ void work() {
        for_each_query_tile([&](int, int, int) { step(); });
    }

    __device__ __forceinline__ void store() const {
        store_gradient<columns_qk>(d_k_, arguments_.d_k, arguments_.d_k_strides,
                                   arguments_.softmax_scale);
    }

  private:
    __device__ __forceinline__ void step() {
        mbarrier_wait(shared_.d_o_full(tile()), SharedMemory::d_o_parity(tile()));
        ScoreAccumulator d_p = {};
        multiply_v_by_queries<DOTile>(
            d_p, v_, columns_first(DOTile{shared_.d_o(tile())}, 0, 0, lane()), d_k_);

        ScoreOperands d_s;
        {
            ScoreAccumulator p;
            take_p(p);
            differentiate(p, d_p, d_s, shared_.delta(), lane());
        }
        // Of dO and delta of this tile, of Q of the one before, and of V.
        end_reads();
        store_scores<ScoreTile>(d_s,
                                rows_first(ScoreTile{shared_.d_s(tile())}, first_key(), 0, lane()));
        arrive(shared_.exchanged());
        mbarrier_wait(shared_.q_full(tile()), SharedMemory::q_parity(tile()));
        multiply_by_operands<QTile>(d_k_, d_s, rows_first(QTile{shared_.q(tile())}, 0, 0, lane()));
        wait_for_d_s();
        add_d_q();
    }

    /// P from the pair's other warp, whose lanes hold what those of this one need.
    __device__ __forceinline__ void take_p(ScoreAccumulator& p) const {
        named_barrier_synchronise(pair_barrier(pair()), pair_threads);
        const uint32_t address = shared_.p(pair(), lane());
#pragma unroll
        for (int fragment = 0; fragment < score_fragments; ++fragment) {
            const float4 numbers = load_shared<float4>(address + fragment * 512);
            p[fragment][0] = numbers.x;
            p[fragment][1] = numbers.y;
            p[fragment][2] = numbers.z;
            p[fragment][3] = numbers.w;
        }
    }

    OperandRegister v_[slices_of<VTile>][4];
    AccumulatorRegister d_k_[head_dim / mma_n][4] = {};
};

}  // namespace backlight::kernel
