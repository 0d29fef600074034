// A key warpgroup of the wgmma kernel: Sᵀ, dPᵀ, dV and dK of 64 keys.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/key_state.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/conversion.cuh"
#include "primitives/exponential.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/tma.cuh"
#include "primitives/wgmma.cuh"

namespace backlight::kernel {

class KeyWarpgroup {
  public:
    __device__ __forceinline__ KeyWarpgroup(const WgmmaArguments& arguments, SharedMemory shared,
                                            int warpgroup, int thread)
        : arguments_(arguments), shared_(shared), warpgroup_(warpgroup), thread_(thread) {}

    __device__ __forceinline__ void work() {
        PostedWork posted(shared_);
        for (Work work = posted.next(lane()); !work.is_end(); work = posted.next(lane())) {
            if (work.has_tile()) {
                work_on(work.tile);
            }
        }
        if (is_store_thread()) {
            bulk_wait<0>();
        }
    }

  private:
    __device__ __forceinline__ void work_on(const Tile& tile) {
#pragma unroll
        for (int i = 0; i < gradient_registers; ++i) {
            state_.d_k[i] = 0;
            state_.d_v[i] = 0;
        }
        mbarrier_wait(shared_.k_full(kv_ring_.slot), kv_ring_.parity);
        if constexpr (k_resident) {
            load_operand(state_.k, shared_.k(kv_ring_.slot));
        }
        mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);
        begin_scores();
        TileStatistics lse;
        lse.load(shared_.lse(query_ring_.slot), lane());
        // The tile before has left: this one's dSᵀ, or its dK, goes over its dK.
        wait_for_stores();
        wgmma_wait<0>();
        int query_tile = query_tiles_of(arguments_) - 1;
        exponentiate<causal>(tile, query_tile, lse);
        mbarrier_wait(shared_.v_full(kv_ring_.slot), kv_ring_.parity);
        if constexpr (v_resident) {
            load_operand(state_.v, shared_.v(kv_ring_.slot));
        }
        const int last = last_query_tile(tile);
        if constexpr (causal) {
            // The last tiles lie on the diagonal. Without a mask there is no branch in the loop.
            const int masked = tile.first_query_tile() + block_kv / block_q;
            for (; query_tile > masked; --query_tile) {
                step<false, false>(tile, query_tile);
            }
        }
        for (; query_tile > last; --query_tile) {
            step<false, causal>(tile, query_tile);
        }
        step<true, false>(tile, query_tile);
        if (last != tile.first_query_tile()) {
            skip_step();
        }
        store_gradients(tile);
        kv_ring_.advance();
    }

    /// The warp's 16 rows of K or V.
    template <int slices>
    __device__ __forceinline__ void load_operand(OperandRegister (&operand)[slices][4],
                                                 uint32_t tile) {
        const int row = warpgroup_ * keys_per_warpgroup + warp() * 16 + lane() % 16;
        const uint32_t address = KvTile{tile}.address(row, lane() / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < slices; ++slice) {
            ldmatrix_x4(operand[slice], KvTile::moved(address, 0, slice * 16));
        }
    }

    /// product = A · Bᵀ over head_dim: this warpgroup's rows of K with Q, or of V with dO.
    template <int resident_slices>
    __device__ __forceinline__ void multiply_by_queries(
        AccumulatorRegister (&product)[score_registers],
        const OperandRegister (&resident)[resident_slices][4], uint32_t a_tile, uint32_t b_tile) {
        constexpr MatrixLayout layout = k_major_layout(MatrixSwizzle::bytes_128);
        const MatrixDescriptor b(b_tile, layout);
        const MatrixDescriptor a(a_tile + warpgroup_ * keys_per_warpgroup * KvTile::row_bytes,
                                 layout);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < depth_slices; ++slice) {
            const int panel = slice / 4;
            const int in_panel = slice % 4 * k_major_step;
            const MatrixDescriptor b_slice = b.advanced(panel * QueryTile::panel_bytes + in_panel);
            if constexpr (resident_slices == depth_slices) {
                wgmma_m64k16<Element, block_q, Major::k>(product, resident[slice], b_slice,
                                                         slice > 0);
            } else {
                wgmma_m64k16<Element, block_q, Major::k, Major::k>(
                    product, a.advanced(panel * KvTile::panel_bytes + in_panel), b_slice,
                    slice > 0);
            }
        }
        wgmma_commit();
    }

    /// gradient += A · B over the queries of the tile: P with dO, or dSᵀ with Q.
    __device__ __forceinline__ void multiply_by_operands(
        AccumulatorRegister (&gradient)[gradient_registers], uint32_t b_tile) {
        const MatrixDescriptor b(b_tile,
                                 mn_major_layout(MatrixSwizzle::bytes_128, QueryTile::panel_bytes));
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            wgmma_m64k16<Element, head_dim, Major::mn>(
                gradient, state_.p[slice],
                b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128)), true);
        }
        wgmma_commit();
    }

    /// Sᵀ of the query tile in the ring's current stage.
    __device__ __forceinline__ void begin_scores() {
        multiply_by_queries(state_.scores[0], state_.k, shared_.k(kv_ring_.slot),
                            shared_.q(query_ring_.slot));
    }

    /// P = exp2(scale · log2(e) · S − LSE · log2(e)). Sᵀ is complete.
    template <bool may_be_masked>
    __device__ __forceinline__ void exponentiate(const Tile& tile, int query_tile,
                                                 const TileStatistics& negated_lse) {
        AccumulatorRegister(&s)[score_registers] = state_.scores[0];
        wgmma_settle(s);
        const float scale = arguments_.softmax_scale_log2;
#pragma unroll
        for (int i = 0; i < score_registers; ++i) {
            s[i] = __fmaf_rn(s[i], scale, negated_lse.of(i));
        }
        if (may_be_masked && (query_tile - tile.first_query_tile()) * block_q < block_kv) {
            // How far the thread's first key lies behind its first query.
            const int behind = tile.kv_start + warpgroup_ * keys_per_warpgroup + warp() * 16 +
                               lane() / 4 - query_tile * block_q - lane() % 4 * 2;
#pragma unroll
            for (int i = 0; i < score_registers; ++i) {
                const int key = i / 2 % 2 * 8;
                const int query = i / 4 * 8 + i % 2;
                if (behind + key > query) {
                    s[i] = -infinity();
                }
            }
        }
#pragma unroll
        for (int i = 0; i < score_registers; ++i) {
            s[i] = exp2_approximate(s[i]);
        }
        if constexpr (!p_unrounded) {
            round_p();
        }
    }

    /// P as operands.
    __device__ __forceinline__ void round_p() {
        const AccumulatorRegister(&p)[score_registers] = state_.scores[0];
#pragma unroll
        for (int i = 0; i < score_registers / 2; ++i) {
            state_.p[i / 4][i % 4] = pack<Element>(p[2 * i], p[2 * i + 1]);
        }
    }

    /// dSᵀ = P ∘ (dPᵀ − delta), over the operands of P.
    __device__ __forceinline__ void differentiate(const TileStatistics& negated_delta) {
        AccumulatorRegister(&d_p)[score_registers] = state_.d_p();
#pragma unroll
        for (int i = 0; i < score_registers / 2; ++i) {
            OperandRegister& operand = state_.p[i / 4][i % 4];
            float2 p;
            if constexpr (p_unrounded) {
                p = float2{state_.scores[0][2 * i], state_.scores[0][2 * i + 1]};
            } else {
                p = unpack<Element>(operand);
            }
            operand = pack<Element>(p.x * (d_p[2 * i] + negated_delta.of(2 * i)),
                                    p.y * (d_p[2 * i + 1] + negated_delta.of(2 * i + 1)));
        }
    }

    /// This warp's 16 rows of dSᵀ, for the query warpgroup.
    __device__ __forceinline__ void store_d_s(uint32_t buffer) {
        const int row = warpgroup_ * keys_per_warpgroup + warp() * 16 + lane() % 16;
        const uint32_t address = ScoreTile{buffer}.address(row, lane() / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            stmatrix_x4(ScoreTile::moved(address, 0, slice * 16), state_.p[slice]);
        }
    }

    /// The lowest that sees any of this warpgroup's keys. Those of the second one all lie behind
    /// the queries of first_query_tile(), which the block visits last.
    __device__ __forceinline__ int last_query_tile(const Tile& tile) const {
        return tile.first_query_tile() + (causal && warpgroup_ == 1 ? 1 : 0);
    }

    /// The query tile that sees none of this warpgroup's keys: the others must not wait for it.
    /// Each phase must have begun before the arrival that counts for it.
    __device__ __forceinline__ void skip_step() {
        const int stage = query_ring_.slot;
        mbarrier_wait(shared_.q_full(stage), query_ring_.parity);
        release(shared_.q_empty(stage));
        mbarrier_wait(shared_.d_o_full(stage), query_ring_.parity);
        release(shared_.d_o_empty(stage));
        query_ring_.advance();
        mbarrier_wait(shared_.d_s_empty(d_s_ring_.slot), d_s_ring_.parity ^ 1);
        release(shared_.d_s_full(d_s_ring_.slot));
        d_s_ring_.advance();
    }

    /// One query tile; afterwards P of the next one is ready, unless it was the last.
    template <bool last, bool next_may_be_masked>
    __device__ __forceinline__ void step(const Tile& tile, int query_tile) {
        const int stage = query_ring_.slot;
        const int parity = query_ring_.parity;
        mbarrier_wait(shared_.d_o_full(stage), parity);
        // Before the products, whose operands a load behind them waits for.
        TileStatistics delta;
        delta.load(shared_.delta(stage), lane());
        multiply_by_queries(state_.d_p(), state_.v, shared_.v(kv_ring_.slot), shared_.d_o(stage));
        if constexpr (p_unrounded) {
            round_p();
        }
        multiply_by_operands(state_.d_v, shared_.d_o(stage));
        wgmma_wait<0>();
        wgmma_settle(state_.d_p());
        wgmma_settle(state_.d_v);
        wgmma_settle(state_.p);
        release(shared_.d_o_empty(stage));

        differentiate(delta);
        if constexpr (!d_k_after_d_s) {
            multiply_by_operands(state_.d_k, shared_.q(stage));
        }
        const int buffer = d_s_ring_.slot;
        mbarrier_wait(shared_.d_s_empty(buffer), d_s_ring_.parity ^ 1);
        store_d_s(shared_.d_s(buffer));
        if constexpr (d_k_after_d_s) {
            multiply_by_operands(state_.d_k, shared_.q(stage));
        }
        fence_shared_before_async_proxy();
        release(shared_.d_s_full(buffer));
        d_s_ring_.advance();
        query_ring_.advance();

        if constexpr (last) {
            wgmma_wait<0>();
            settle_d_k();
            release(shared_.q_empty(stage));
        } else {
            const int next = query_ring_.slot;
            mbarrier_wait(shared_.q_full(next), query_ring_.parity);
            TileStatistics lse;
            if constexpr (lse_before_scores) {
                lse.load(shared_.lse(next), lane());
            }
            begin_scores();
            wgmma_wait<1>();
            settle_d_k();
            release(shared_.q_empty(stage));
            if constexpr (!lse_before_scores) {
                lse.load(shared_.lse(next), lane());
            }
            wgmma_wait<0>();
            exponentiate<next_may_be_masked>(tile, query_tile - 1, lse);
        }
    }

    __device__ __forceinline__ void settle_d_k() {
        wgmma_settle(state_.d_k);
        wgmma_settle(state_.p);
    }

    __device__ __forceinline__ int warp() const {
        return thread_ / warp_size;
    }
    __device__ __forceinline__ int lane() const {
        return thread_ % warp_size;
    }

    /// Waits for the rest of the warpgroup.
    __device__ __forceinline__ void synchronise() const {
        // A constant each, so that ptxas reserves no more barriers than there are.
        if (warpgroup_ == 0) {
            named_barrier_synchronise(key_warpgroup_0, warpgroup_size);
        } else {
            named_barrier_synchronise(key_warpgroup_1, warpgroup_size);
        }
    }

    /// One arrival a warp.
    __device__ __forceinline__ void release(uint32_t barrier) {
        __syncwarp();
        if (lane() == 0) {
            mbarrier_arrive(barrier);
        }
    }

    /// dV leaves over V, of which a warpgroup reads only the rows that it writes, and dK over dSᵀ
    /// or through a place of its own. K is left alone: the query warpgroup still needs it, and the
    /// next K may come as soon as it does not.
    __device__ __forceinline__ void store_gradients(const Tile& tile) {
        const int buffer = kv_ring_.slot;
        release(shared_.k_empty(buffer));
        stage(state_.d_v, 1.0F, shared_.v(buffer));
        if constexpr (!d_k_has_place) {
            publish();
            store(shared_.v(buffer), arguments_.d_v, tile);
            wait_for_query_warpgroup();
        }
        stage(state_.d_k, arguments_.softmax_scale, shared_.d_k());
        publish();
        if constexpr (d_k_has_place) {
            store(shared_.v(buffer), arguments_.d_v, tile);
        }
        store(shared_.d_k(), arguments_.d_k, tile);
        if (is_store_thread()) {
            bulk_wait_read<1>();
            mbarrier_arrive(shared_.v_empty(buffer));
        }
    }

    /// Until it has read every dSᵀ.
    __device__ __forceinline__ void wait_for_query_warpgroup() {
        RingPosition<d_s_buffers> position = d_s_ring_;
#pragma unroll
        for (int i = 0; i < d_s_buffers; ++i) {
            mbarrier_wait(shared_.d_s_empty(position.slot), position.parity ^ 1);
            position.advance();
        }
    }

    /// The thread that lets TMA bring this warpgroup's gradients out.
    __device__ __forceinline__ bool is_store_thread() const {
        return warp() == 0 && lane() == 0;
    }

    /// What TMA has been told to store has left shared memory.
    __device__ __forceinline__ void wait_for_stores() const {
        if (is_store_thread()) {
            bulk_wait_read<0>();
        }
        synchronise();
    }

    /// What the warpgroup has staged is TMA's to read.
    __device__ __forceinline__ void publish() const {
        fence_shared_before_async_proxy();
        synchronise();
    }

    __device__ __forceinline__ void stage(const AccumulatorRegister (&gradient)[gradient_registers],
                                          float scale, uint32_t staged) {
        const uint32_t address = KvTile{staged}.address(
            warpgroup_ * keys_per_warpgroup + warp() * 16 + lane() % 16, lane() / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < depth_slices; ++slice) {
            OperandRegister rounded[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int j = 8 * slice + 2 * i;
                rounded[i] = pack<Element>(gradient[j] * scale, gradient[j + 1] * scale);
            }
            stmatrix_x4(KvTile::moved(address, 0, slice * 16), rounded);
        }
    }

    __device__ __forceinline__ void store(uint32_t staged, const TensorMap& map,
                                          const Tile& tile) const {
        if (is_store_thread()) {
            const int first_key = warpgroup_ * keys_per_warpgroup;
#pragma unroll
            for (int panel = 0; panel < KvTile::panels; ++panel) {
                tma_store_4d(&map, panel * KvTile::panel_columns, tile.kv_start + first_key,
                             tile.head, tile.batch,
                             staged + panel * KvTile::panel_bytes + first_key * KvTile::row_bytes);
            }
            bulk_commit();
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int warpgroup_;
    int thread_;  // of the warpgroup
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<stages> query_ring_;
    RingPosition<d_s_buffers> d_s_ring_;
    KeyState state_;
};

}  // namespace backlight::kernel
