// A key warpgroup of the wgmma kernel: Sᵀ, dPᵀ, dV and dK of 64 keys.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/gradient_stores.cuh"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/key_state.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "attention_backward_wgmma/walk.cuh"
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
        for (HeldWork work = posted.next(lane()); !work.is_end(); work = posted.next(lane())) {
            if (work.has_tile()) {
                work_on(work.tile);
            }
            posted.done(lane());
        }
        if (is_store_thread()) {
            bulk_wait<0>();
        }
    }

  private:
    __device__ __forceinline__ void work_on(const HeldTile& tile) {
#pragma unroll
        for (int i = 0; i < gradient_registers; ++i) {
            state_.d_k[i] = 0;
            state_.d_v[i] = 0;
        }
        if constexpr (fp32_gradients) {
            put_down(tile);
        }
        mbarrier_wait(shared_.k_full(kv_ring_.slot), kv_ring_.parity);
        // Of keys that no query sees there is no K.
        if (k_resident && !(posts_steps && is_unseen(arguments_, with_rows(tile)))) {
            load_operand(state_.k, shared_.k(kv_ring_.slot));
        }
        if constexpr (posts_steps) {
            follow_steps(tile);
        } else if constexpr (walks_up) {
            count_steps_up(tile);
        } else {
            count_steps(tile);
        }
        store_gradients(tile);
        kv_ring_.advance();
    }

    /// The steps of all query tiles, or of those from the diagonal on.
    __device__ __forceinline__ void count_steps(const HeldTile& tile) {
        mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);
        TileStatistics lse;
        multiply_first(lse);
        int query_tile = query_tiles_of(arguments_) - 1;
        exponentiate(CountedMask<causal>{tile, query_tile}, lse);
        receive_v();
        const int last = lowest_query_tile(tile);
        if constexpr (causal) {
            // The last tiles lie on the diagonal. Without a mask there is no branch in the loop.
            const int masked = tile.first_query_tile() + block_kv / block_q;
            for (; query_tile > masked; --query_tile) {
                step(NextCounted<false>{tile, query_tile});
            }
        }
        for (; query_tile > last; --query_tile) {
            step(NextCounted<causal>{tile, query_tile});
        }
        step(NoNext{});
        if (last != tile.first_query_tile()) {
            skip_step();
        }
    }

    /// The same the other way.
    __device__ __forceinline__ void count_steps_up(const HeldTile& tile) {
        int query_tile = lowest_query_tile(tile);
        if (query_tile != tile.first_query_tile()) {
            skip_step();
        }
        mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);
        TileStatistics lse;
        multiply_first(lse);
        exponentiate(CountedMask<causal>{tile, query_tile}, lse);
        receive_v();
        if constexpr (causal) {
            // The first tiles lie on the diagonal.
            const int masked = tile.first_query_tile() + block_kv / block_q - 1;
            for (; query_tile < masked; ++query_tile) {
                step(NextCounted<true>{tile, query_tile});
            }
        }
        const int last = query_tiles_of(arguments_) - 1;
        for (; query_tile < last; ++query_tile) {
            step(NextCounted<false>{tile, query_tile});
        }
        step(NoNext{});
    }

    /// The steps that the loader posts. Where one is left out, those after it begin anew.
    __device__ __forceinline__ void follow_steps(const HeldTile& tile) {
        Step posted = Step::none(is_unseen(arguments_, with_rows(tile)));
        while (!posted.is_last()) {
            mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);
            posted = Step::load(shared_.step(query_ring_.slot));
            if (!posted.is_seen_by(warpgroup_)) {
                skip_step();
                continue;
            }
            TileStatistics lse;
            multiply_first(lse);
            exponentiate(PostedMask{posted}, lse);
            receive_v();
            while (posted.goes_on(warpgroup_)) {
                posted = step(NextPosted{}).posted;
            }
            step(NoNext{});
        }
        // Also where all have been left out: gradients leave over V, behind those of the tile
        // before.
        wait_for_stores();
        mbarrier_wait(shared_.v_full(kv_ring_.slot), kv_ring_.parity);
    }

    /// Sᵀ of a query tile before which there is no step, and its LSE.
    __device__ __forceinline__ void multiply_first(TileStatistics& lse) {
        begin_scores();
        lse.load(shared_.lse(query_ring_.slot), lane());
        // The tile before has left: this one's dSᵀ, or its dK, goes over its dK.
        wait_for_stores();
        wgmma_wait<0>();
    }

    __device__ __forceinline__ void receive_v() {
        mbarrier_wait(shared_.v_full(kv_ring_.slot), kv_ring_.parity);
        if constexpr (v_resident) {
            load_operand(state_.v, shared_.v(kv_ring_.slot));
        }
    }

    // Which scores of a query tile are none.

    /// Where steps are counted: the tile may lie on the diagonal of a square causal mask.
    template <bool may_be_masked>
    struct CountedMask {
        const HeldTile& tile;
        int query_tile;

        __device__ __forceinline__ bool hides_any(int) const {
            return may_be_masked && (query_tile - tile.first_query_tile()) * block_q < block_kv;
        }
        /// From a thread's first key and its first query on.
        __device__ __forceinline__ DiagonalScores scores(uint32_t, int warpgroup, int warp,
                                                         int lane) const {
            return DiagonalScores{tile.kv_start + warpgroup * keys_per_warpgroup + warp * 16 +
                                  lane / 4 - query_tile * block_q - lane % 4 * 2};
        }
    };
    /// Where they are posted, by the loader.
    struct PostedMask {
        Step posted;

        __device__ __forceinline__ bool hides_any(int warpgroup) const {
            return has_edges && posted.is_edge_of(warpgroup);
        }
        __device__ __forceinline__ EdgeScores scores(uint32_t place, int warpgroup, int warp,
                                                     int lane) const {
            return Step::load_scores(place).moved(
                warpgroup * keys_per_warpgroup + warp * 16 + lane / 4, lane % 4 * 2);
        }
    };

    // What a step prepares beside its own tile: nothing, or P of the next tile, with its mask.

    struct NoNext {
        static constexpr bool exists = false;
    };
    template <bool may_be_masked>
    struct NextCounted {
        static constexpr bool exists = true;
        const HeldTile& tile;
        int query_tile;  // of the step

        __device__ __forceinline__ void look(uint32_t) {}
        __device__ __forceinline__ CountedMask<may_be_masked> mask() const {
            return {tile, walks_up ? query_tile + 1 : query_tile - 1};
        }
    };
    struct NextPosted {
        static constexpr bool exists = true;
        Step posted;

        __device__ __forceinline__ void look(uint32_t place) { posted = Step::load(place); }
        __device__ __forceinline__ PostedMask mask() const { return {posted}; }
    };

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
        const uint32_t a_rows = a_tile + warpgroup_ * keys_per_warpgroup * KvTile::row_bytes;
        // Not held across steps where these have no registers for it.
        const MatrixDescriptor a(posts_steps ? opaque(a_rows) : a_rows, layout);
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
    template <typename Mask>
    __device__ __forceinline__ void exponentiate(const Mask& mask,
                                                 const TileStatistics& negated_lse) {
        AccumulatorRegister(&s)[score_registers] = state_.scores[0];
        wgmma_settle(s);
        const float scale = arguments_.softmax_scale_log2;
#pragma unroll
        for (int i = 0; i < score_registers; ++i) {
            s[i] = __fmaf_rn(s[i], scale, negated_lse.of(i));
        }
        if (mask.hides_any(warpgroup_)) {
            const auto scores =
                mask.scores(shared_.step(query_ring_.slot), warpgroup_, warp(), lane());
#pragma unroll
            for (int i = 0; i < score_registers; ++i) {
                if (scores.hides(i / 4, i % 4)) {
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
    /// the queries of first_query_tile().
    __device__ __forceinline__ int lowest_query_tile(const HeldTile& tile) const {
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

    /// One query tile; afterwards P of the next one is ready, if there is one. Returns what has
    /// been learned of that.
    template <typename Next>
    __device__ __forceinline__ Next step(Next next_tile) {
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

        if constexpr (!Next::exists) {
            wgmma_wait<0>();
            settle_d_k();
            release(shared_.q_empty(stage));
        } else {
            const int next = query_ring_.slot;
            mbarrier_wait(shared_.q_full(next), query_ring_.parity);
            next_tile.look(shared_.step(next));
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
            exponentiate(next_tile.mask(), lse);
        }
        return next_tile;
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
    __device__ __forceinline__ void store_gradients(const HeldTile& tile) {
        const int buffer = kv_ring_.slot;
        release(shared_.k_empty(buffer));
        if constexpr (fp32_gradients) {
            const HeldTile found = pick_up_tile();
            synchronise();
            if (is_store_thread()) {
                mbarrier_arrive(shared_.v_empty(buffer));
            }
            store_rows<columns_v>(state_.d_v, 1.0F, arguments_.d_v_data, arguments_.d_v_strides,
                                  found);
            store_rows<columns_qk>(state_.d_k, arguments_.softmax_scale, arguments_.d_k_data,
                                   arguments_.d_k_strides, found);
            return;
        }
        stage(state_.d_v, 1.0F, shared_.v(buffer));
        if constexpr (!d_k_has_place) {
            publish();
            store(shared_.v(buffer), arguments_.d_v, packed_d_v, tile);
            wait_for_query_warpgroup();
        }
        stage(state_.d_k, arguments_.softmax_scale, shared_.d_k());
        publish();
        if constexpr (d_k_has_place) {
            store(shared_.v(buffer), arguments_.d_v, packed_d_v, tile);
        }
        store(shared_.d_k(), arguments_.d_k, packed_d_k, tile);
        if (is_store_thread()) {
            bulk_wait_read<1>();
            mbarrier_arrive(shared_.v_empty(buffer));
        }
    }

    // What plain stores need of a tile has no registers while it is worked on. Between the two, and
    // before the next tile, the warpgroup waits for itself.

    __device__ __forceinline__ void put_down(const HeldTile& tile) const {
        if (is_store_thread()) {
            uint32_t place = 0;
            if constexpr (packed) {
                place = place_of(tile);
            }
            store_shared(shared_.tile(warpgroup_),
                         uint4{static_cast<uint32_t>(tile.batch), static_cast<uint32_t>(tile.head),
                               static_cast<uint32_t>(tile.kv_start), place});
        }
    }
    __device__ __forceinline__ HeldTile pick_up_tile() const {
        const uint4 words = load_shared<uint4>(shared_.tile(warpgroup_));
        HeldTile tile;
        tile.batch = static_cast<int>(words.x);
        tile.head = static_cast<int>(words.y);
        tile.kv_start = static_cast<int>(words.z);
        if constexpr (packed) {
            set_place(tile, words.w);
        }
        return with_rows(tile);
    }

    /// From the registers to where the gradient lies.
    template <int columns>
    __device__ __forceinline__ void store_rows(AccumulatorRegister (&gradient)[gradient_registers],
                                               float scale, void* data, const Strides& strides,
                                               const HeldTile& tile) const {
        const int thread = static_cast<int>(opaque(static_cast<uint32_t>(thread_)));
        const int first_key = tile.kv_start + warpgroup_ * keys_per_warpgroup +
                              thread / warp_size * 16 + thread % warp_size / 4;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int64_t key = first_key + half * 8;
            if (partial_key_tiles && key >= seqlen_kv_of(arguments_, tile)) {
                continue;
            }
            Gradient* const row =
                static_cast<Gradient*>(data) + (packed ? 0 : tile.batch * strides.batch) +
                tile.head * strides.head + (packed ? tile.kv_begin + key : key) * strides.seqlen +
                thread % 4 * 2;
            if constexpr (specialisation::accumulates_gradients) {
#pragma unroll
                for (int i = 0; i < head_dim / 8; ++i) {
                    if (i * 8 < columns) {
                        const float2 sums = added_two(row + i * 8, gradient[4 * i + 2 * half],
                                                      gradient[4 * i + 2 * half + 1], scale);
                        gradient[4 * i + 2 * half] = sums.x;
                        gradient[4 * i + 2 * half + 1] = sums.y;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < head_dim / 8; ++i) {
                if (i * 8 < columns) {
                    store_two(row + i * 8, gradient[4 * i + 2 * half] * scale_at_store(scale),
                              gradient[4 * i + 2 * half + 1] * scale_at_store(scale));
                }
            }
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

    __device__ __forceinline__ void store(uint32_t staged, const TensorMap& whole,
                                          PackedOperandIndex operand, const HeldTile& tile) const {
        // Of a packed sequence without keys there is nothing to be stored.
        if (is_store_thread() && (!packed || tile.batch >= 0)) {
            const TensorMap& map = acquired_map_of(arguments_, whole, operand, tile.batch);
            const int first_key = warpgroup_ * keys_per_warpgroup;
#pragma unroll
            for (int panel = 0; panel < KvTile::panels; ++panel) {
                tma_store_4d(&map, panel * KvTile::panel_columns, tile.kv_start + first_key,
                             tile.head, packed ? 0 : tile.batch,
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
