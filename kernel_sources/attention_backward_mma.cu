// The attention backward with mma.sync and TMA: one source, v1, v2, v3 and every other tile
// configuration of it.
//
// A thread block owns block_kv keys and values of one head. It keeps their gradients dK and dV in
// registers and walks over the queries, block_q at a time:
//
//     S  = Q Kᵀ          dP = dO Vᵀ            fragments of K and V stay in registers
//     P  = exp(scale · S − LSE)
//     dS = P ∘ (dP − delta)                    P and dS go to shared memory, as 16-bit elements
//     dV += Pᵀ dO        dK += dSᵀ Q
//     dQ  = dS K                               summed over blocks in an fp32 accumulator
//
// dQ and dK still lack the factor softmax_scale: dK gets it when it is stored, dQ when it is
// converted.
//
// The warps divide each product's result into row groups of 16 rows, several warps a row group,
// each a span of columns. S and dP (block_q × block_kv) and dQ (block_q × head_dim) share one
// division, dK and dV (block_kv × head_dim) have their own.
#include "arguments/attention_backward.h"
#include "mma_repeats.cuh"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/exponential.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/mma.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/reduction.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/swizzle.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::block_kv;
using specialisation::block_q;
using specialisation::causal;
using specialisation::head_dim;
using specialisation::stages;
using specialisation::warps;
using Element = specialisation::Element;

constexpr int threads = warps * warp_size;

// --- How the warps divide the tiles -------------------------------------------------------------

constexpr int query_row_groups = block_q / mma_m;
constexpr int warps_per_query_row_group = warps / query_row_groups;
constexpr int score_columns = block_kv / warps_per_query_row_group;
constexpr int d_q_columns = head_dim / warps_per_query_row_group;

constexpr int key_row_groups = block_kv / mma_m;
constexpr int warps_per_key_row_group = warps / key_row_groups;
constexpr int d_kv_columns = head_dim / warps_per_key_row_group;

static_assert(warps % query_row_groups == 0, "the query row groups share the warps evenly");
static_assert(warps % key_row_groups == 0, "the key row groups share the warps evenly");
// One ldmatrix.x4 feeds two neighbouring 16×8 results: spans are multiples of 16 columns.
static_assert(score_columns % 16 == 0, "a warp computes whole pairs of score fragments");
static_assert(d_q_columns % 16 == 0, "a warp computes whole pairs of dQ fragments");
static_assert(d_kv_columns % 16 == 0, "a warp computes whole pairs of dK and dV fragments");

constexpr int depth_slices = head_dim / mma_k;
constexpr int score_fragments = score_columns / mma_n;
constexpr int d_q_fragments = d_q_columns / mma_n;
constexpr int d_kv_fragments = d_kv_columns / mma_n;

// Fragments of K and V are the same for every query tile. They stay in registers where these,
// beside the dK and dV sums, leave room for the rest; else they are read again for each tile.
constexpr int registers_per_multiprocessor = 65536;
constexpr int most_registers =
    registers_per_multiprocessor / threads < 255 ? registers_per_multiprocessor / threads : 255;
constexpr int resident_registers = 2 * depth_slices * score_fragments * 2;
constexpr int gradient_registers = 2 * d_kv_fragments * 4;
constexpr bool kv_fragments_resident =
    resident_registers + gradient_registers + 32 <= most_registers;

// Several blocks a multiprocessor, where registers and shared memory suffice, fill each other's
// waits. ptxas must be told: it may else take a few registers more than leave room for the second.
constexpr int comfortable_registers =
    (kv_fragments_resident ? resident_registers : 8) + gradient_registers + 60;
constexpr int blocks_by_registers =
    registers_per_multiprocessor / (threads * comfortable_registers);
constexpr int blocks_by_shared_memory =
    specialisation::shared_bytes_per_multiprocessor / (specialisation::shared_bytes + 1024);
constexpr int blocks_together =
    blocks_by_registers < blocks_by_shared_memory ? blocks_by_registers : blocks_by_shared_memory;
constexpr int blocks_per_multiprocessor = blocks_together > 1 ? blocks_together : 1;

// --- Shared memory ------------------------------------------------------------------------------

using KvTile = SwizzledTile<block_kv, head_dim>;
using QueryTile = SwizzledTile<block_q, head_dim>;
using ScoreTile = SwizzledTile<block_q, block_kv>;

static_assert(walkable_span<ScoreTile, score_columns> && walkable_span<QueryTile, d_kv_columns> &&
                  walkable_span<KvTile, d_q_columns>,
              "a warp's span of columns fills panels or divides one");

// With one stage the next tile is loaded when the current one has been used; with more, that many
// less one tiles ahead. Each load in flight has a barrier.
constexpr int loads_in_flight = stages == 1 ? 1 : stages - 1;

constexpr int k_offset = 0;
constexpr int v_offset = k_offset + KvTile::bytes;
constexpr int q_offset = v_offset + KvTile::bytes;
constexpr int d_o_offset = q_offset + stages * QueryTile::bytes;
constexpr int p_offset = d_o_offset + stages * QueryTile::bytes;
constexpr int d_s_offset = p_offset + ScoreTile::bytes;
constexpr int kv_barrier_offset = d_s_offset + ScoreTile::bytes;
constexpr int query_barrier_offset = kv_barrier_offset + 8;
constexpr int v_from_k = v_offset - k_offset;
constexpr int d_o_from_q = d_o_offset - q_offset;
constexpr int d_s_from_p = d_s_offset - p_offset;
constexpr int shared_bytes = query_barrier_offset + 8 * loads_in_flight;
static_assert(shared_bytes == specialisation::shared_bytes, "host and kernel count alike");

// --- Loading ------------------------------------------------------------------------------------

/// The (batch, head) slice that a thread block works on.
struct HeadIndex {
    int batch;
    int head;
};

/// Copies `Tile::panels` panels, from row `row` of the head's matrix on.
template <typename Tile>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap& map, int row,
                                          HeadIndex index, uint32_t barrier) {
#pragma unroll
    for (int panel = 0; panel < Tile::panels; ++panel) {
        tma_load_4d(destination + panel * Tile::panel_bytes, &map, panel * Tile::panel_columns, row,
                    index.head, index.batch, barrier);
    }
}

/// Where the loads of Q and dO tiles have got to.
struct QueryPipeline {
    uint32_t shared;

    __device__ __forceinline__ uint32_t q_tile(int tile) const {
        return shared + q_offset + (tile % stages) * QueryTile::bytes;
    }
    __device__ __forceinline__ uint32_t d_o_tile(int tile) const {
        return shared + d_o_offset + (tile % stages) * QueryTile::bytes;
    }
    __device__ __forceinline__ uint32_t barrier(int tile) const {
        return shared + query_barrier_offset + (tile % loads_in_flight) * 8;
    }
    __device__ __forceinline__ int parity(int tile) const { return (tile / loads_in_flight) & 1; }

    /// Called by one thread. `tile` counts from the first tile that this block visits.
    __device__ __forceinline__ void load(const MmaArguments& arguments, int tile, int query_start,
                                         HeadIndex index) const {
        mbarrier_arrive_expect_bytes(barrier(tile), 2 * QueryTile::bytes);
        load_tile<QueryTile>(q_tile(tile), arguments.q, query_start, index, barrier(tile));
        load_tile<QueryTile>(d_o_tile(tile), arguments.d_o, query_start, index, barrier(tile));
    }
};

// --- Places -------------------------------------------------------------------------------------

/// Which part of each tile a thread works on. Computed anew in every phase of the loop, from the
/// thread's number alone: registers are scarcer there than integer instructions.
struct Place {
    int lane;
    int query_row;    // first row of the warp's part of S, dP and dQ
    int first_key;    // first column of its part of S and dP
    int d_q_column;   // first column of its part of dQ
    int key_row;      // first row of its part of dK and dV
    int d_kv_column;  // first column of its part of dK and dV
    // The lane's place in a 16×8 result: rows fragment_row and fragment_row + 8.
    int fragment_row;
    int fragment_column;

    __device__ __forceinline__ explicit Place(uint32_t thread) {
        const int warp = static_cast<int>(thread / warp_size);
        lane = static_cast<int>(thread % warp_size);
        query_row = warp / warps_per_query_row_group * mma_m;
        first_key = warp % warps_per_query_row_group * score_columns;
        d_q_column = warp % warps_per_query_row_group * d_q_columns;
        key_row = warp / warps_per_key_row_group * mma_m;
        d_kv_column = warp % warps_per_key_row_group * d_kv_columns;
        fragment_row = lane / 4;
        fragment_column = lane % 4 * 2;
    }
};

// --- Fragments ----------------------------------------------------------------------------------
//
// The four ways in which ldmatrix reads a 16×16 block, named by the operand that it becomes. Each
// lane starts from the address of its own 16-byte row in the block at (row, column); the other
// blocks of the tile are moves away from it.

/// A operand, stored as it is used: rows of the block are rows of A. Also two B operands whose
/// rows are rows of the block, when read transposed.
template <typename Tile>
__device__ __forceinline__ uint32_t lane_address_rows_first(Tile tile, int row, int column,
                                                            int lane) {
    return tile.address(row + lane % 16, column + lane / 16 * 8);
}

/// A operand whose rows are columns of the block, when read transposed. Also two B operands whose
/// columns are rows of the block.
template <typename Tile>
__device__ __forceinline__ uint32_t lane_address_columns_first(Tile tile, int row, int column,
                                                               int lane) {
    return tile.address(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8);
}

/// B operands of K or V for the scores: [slice of head_dim][pair of 8-key fragments].
using KvFragments = OperandRegister[depth_slices][score_fragments / 2][4];

__device__ __forceinline__ void load_kv_fragments(KvFragments& fragments, uint32_t lane_address) {
#pragma unroll
    for (int slice = 0; slice < depth_slices; ++slice) {
#pragma unroll
        for (int pair = 0; pair < score_fragments / 2; ++pair) {
            ldmatrix_x4(fragments[slice][pair],
                        KvTile::moved(lane_address, pair * 16, slice * mma_k));
        }
    }
}

/// product += A · Bᵀ, with A = Q and B = K, or A = dO and B = V: the block of rows at `a_address`
/// with the key rows at `b_address`, which are read again where they are not resident. `idle` is
/// for measuring alone.
__device__ __forceinline__ void multiply_by_kv(AccumulatorRegister (&product)[score_fragments][4],
                                               uint32_t a_address, KvFragments& resident,
                                               uint32_t b_address,
                                               AccumulatorRegister (&idle)[d_kv_fragments][4]) {
#pragma unroll
    for (int slice = 0; slice < depth_slices; ++slice) {
        OperandRegister a[4];
        ldmatrix_x4(a, QueryTile::moved(a_address, 0, slice * mma_k));
#pragma unroll
        for (int pair = 0; pair < score_fragments / 2; ++pair) {
            if constexpr (!kv_fragments_resident) {
                ldmatrix_x4(resident[slice][pair],
                            KvTile::moved(b_address, pair * 16, slice * mma_k));
            }
            const OperandRegister(&b)[4] = resident[slice][pair];
            mma_m16n8k16<Element>(product[2 * pair], a, b[0], b[1]);
            mma_m16n8k16<Element>(product[2 * pair + 1], a, b[2], b[3]);
            repeat_products<2>(idle, a);
        }
    }
}

/// gradient += Aᵀ · B, with A = P and B = dO, or A = dS and B = Q, over all rows of the query tile.
__device__ __forceinline__ void multiply_transposed(
    AccumulatorRegister (&gradient)[d_kv_fragments][4], uint32_t a_address, uint32_t b_address) {
#pragma unroll
    for (int query = 0; query < block_q; query += mma_k) {
        OperandRegister a[4];
        ldmatrix_x4_transposed(a, ScoreTile::moved(a_address, query, 0));
#pragma unroll
        for (int pair = 0; pair < d_kv_fragments / 2; ++pair) {
            OperandRegister b[4];
            ldmatrix_x4_transposed(b, QueryTile::moved(b_address, query, pair * 16));
            mma_m16n8k16<Element>(gradient[2 * pair], a, b[0], b[1]);
            mma_m16n8k16<Element>(gradient[2 * pair + 1], a, b[2], b[3]);
            repeat_products<2>(gradient, a, 2 * pair + 2);
        }
    }
}

/// Stores a 16×8 result, rounded to elements, at the lane's place of its first row.
__device__ __forceinline__ void store_fragment(uint32_t address,
                                               const AccumulatorRegister (&fragment)[4]) {
    store_shared(address, pack<Element>(fragment[0], fragment[1]));
    store_shared(ScoreTile::moved(address, 8, 0), pack<Element>(fragment[2], fragment[3]));
}

// --- The kernel ---------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    attention_backward_mma(const __grid_constant__ MmaArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);

    const uint32_t thread = threadIdx.x;
    const bool first_warp = thread < warp_size;

    const int seqlen_q =
        specialisation::seqlen_q != 0 ? specialisation::seqlen_q : arguments.seqlen_q;
    const int seqlen_kv =
        specialisation::seqlen_kv != 0 ? specialisation::seqlen_kv : arguments.seqlen_kv;

    const int kv_tiles = seqlen_kv / block_kv;
    const int batch_head = static_cast<int>(blockIdx.x) / kv_tiles;
    const int kv_start = static_cast<int>(blockIdx.x) % kv_tiles * block_kv;
    const HeadIndex index{batch_head / arguments.heads, batch_head % arguments.heads};

    // Query tiles that lie wholly above the diagonal see none of this block's keys.
    const int first_query = causal ? kv_start / block_q * block_q : 0;

    const KvTile k_tile{shared + k_offset};
    const KvTile v_tile{shared + v_offset};
    const ScoreTile p_tile{shared + p_offset};
    const ScoreTile d_s_tile{shared + d_s_offset};
    const QueryPipeline pipeline{shared};
    const uint32_t kv_barrier = shared + kv_barrier_offset;

    if (thread == 0) {
        mbarrier_initialise(kv_barrier, 1);
#pragma unroll
        for (int i = 0; i < loads_in_flight; ++i) {
            mbarrier_initialise(pipeline.barrier(i), 1);
        }
        mbarrier_initialisation_fence();
    }
    __syncthreads();

    // Q, K, V and dO are the caller's: they may be read before the delta kernel has ended.
    if (first_warp && elect_one()) {
        mbarrier_arrive_expect_bytes(kv_barrier, 2 * KvTile::bytes);
        load_tile<KvTile>(k_tile.base, arguments.k, kv_start, index, kv_barrier);
        load_tile<KvTile>(v_tile.base, arguments.v, kv_start, index, kv_barrier);
#pragma unroll
        for (int tile = 0; tile < loads_in_flight; ++tile) {
            const int query_start = first_query + tile * block_q;
            if (query_start < seqlen_q) {
                pipeline.load(arguments, tile, query_start, index);
            }
        }
    }

    mbarrier_wait(kv_barrier, 0);

    KvFragments k_fragments;
    KvFragments v_fragments;
    if constexpr (kv_fragments_resident) {
        const Place place{thread};
        const uint32_t address = lane_address_columns_first(k_tile, place.first_key, 0, place.lane);
        load_kv_fragments(k_fragments, address);
        load_kv_fragments(v_fragments, address + v_from_k);
    }

    AccumulatorRegister d_k[d_kv_fragments][4] = {};
    AccumulatorRegister d_v[d_kv_fragments][4] = {};

    // Delta, LSE and the zeroed accumulator come from the delta kernel.
    wait_for_previous_kernel();

    const int64_t head_row = static_cast<int64_t>(batch_head) * seqlen_q;
    int tile = 0;  // counts from the first tile that this block visits
    for (int query_start = first_query; query_start < seqlen_q; query_start += block_q, ++tile) {
        // Asked for before the wait, so that they arrive during it.
        const Place statistics_place{opaque(thread)};
        const RowStatistics* row_statistics = arguments.row_statistics + head_row + query_start +
                                              statistics_place.query_row +
                                              statistics_place.fragment_row;
        const RowStatistics statistics[2] = {row_statistics[0], row_statistics[8]};

        mbarrier_wait(pipeline.barrier(tile), pipeline.parity(tile));
        const QueryTile q_tile{pipeline.q_tile(tile)};

        // S = Q Kᵀ.
        const Place scores_place{opaque(thread)};
        const uint32_t q_scores =
            lane_address_rows_first(q_tile, scores_place.query_row, 0, scores_place.lane);
        const uint32_t k_scores =
            lane_address_columns_first(k_tile, scores_place.first_key, 0, scores_place.lane);
        AccumulatorRegister scores[score_fragments][4] = {};
        multiply_by_kv(scores, q_scores, k_fragments, k_scores, d_k);

        // P = exp(scale · S − LSE). The tensor cores go on with dP meanwhile.
        const Place softmax_place{opaque(thread)};
        const uint32_t p_store =
            p_tile.address(softmax_place.query_row + softmax_place.fragment_row,
                           softmax_place.first_key) +
            softmax_place.fragment_column * sizeof(Element);
        // How far the lane's first key lies behind its first query. Below the diagonal the mask
        // hides nothing; asking there as well costs less than a branch, which would keep the
        // exponentials from running beside the products.
        const int first_key_behind = kv_start + softmax_place.first_key +
                                     softmax_place.fragment_column - query_start -
                                     softmax_place.query_row - softmax_place.fragment_row;
#pragma unroll
        for (int fragment = 0; fragment < score_fragments; ++fragment) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float exponent = __fmaf_rn(scores[fragment][i], arguments.softmax_scale_log2,
                                                 -statistics[i / 2].lse_log2);
                const bool masked =
                    causal && first_key_behind + fragment * mma_n + i % 2 > i / 2 * 8;
                scores[fragment][i] = exp2_approximate(masked ? -infinity() : exponent);
            }
            store_fragment(ScoreTile::moved(p_store, 0, fragment * mma_n), scores[fragment]);
        }

        // P is whole; the previous tile's dS has been read by all, so that this tile's may take its
        // place; and all have seen this tile arrive, so that its barrier may count the next load.
        __syncthreads();
        if constexpr (stages > 1) {
            // The copy goes over the tile before this one. Its last products come before this
            // tile's S in every thread, so no read of it can still be under way, and the barrier is
            // enough; with one stage it would not be.
            const int ahead = query_start + loads_in_flight * block_q;
            if (ahead < seqlen_q && first_warp && elect_one()) {
                pipeline.load(arguments, tile + loads_in_flight, ahead, index);
            }
        }

        // dP = dO Vᵀ and dS = P ∘ (dP − delta).
        AccumulatorRegister d_p[score_fragments][4] = {};
        multiply_by_kv(d_p, q_scores + d_o_from_q, v_fragments, k_scores + v_from_k, d_k);
#pragma unroll
        for (int fragment = 0; fragment < score_fragments; ++fragment) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                d_p[fragment][i] =
                    scores[fragment][i] * (d_p[fragment][i] - statistics[i / 2].delta);
            }
            store_fragment(ScoreTile::moved(p_store + d_s_from_p, 0, fragment * mma_n),
                           d_p[fragment]);
        }

        // dV += Pᵀ dO. It asks nothing of dS, whose arithmetic hides among these products.
        const Place d_kv_place{opaque(thread)};
        const uint32_t q_d_kv =
            lane_address_rows_first(q_tile, 0, d_kv_place.d_kv_column, d_kv_place.lane);
        const uint32_t p_d_kv =
            lane_address_columns_first(p_tile, 0, d_kv_place.key_row, d_kv_place.lane);
        multiply_transposed(d_v, p_d_kv, q_d_kv + d_o_from_q);
        // dS is whole.
        __syncthreads();

        // dK += dSᵀ Q.
        multiply_transposed(d_k, p_d_kv + d_s_from_p, q_d_kv);
        if constexpr (stages == 1) {
            // Q and dO have been read by all: the next tile may take their place. The fence keeps
            // these reads ahead of the copy, which goes another way to shared memory.
            fence_shared_before_async_proxy();
            __syncthreads();
            const int next = query_start + block_q;
            if (next < seqlen_q && first_warp && elect_one()) {
                pipeline.load(arguments, tile + 1, next, index);
            }
        }

        // dQ = dS K, added to what the other blocks of this head contribute.
        const Place d_q_place{opaque(thread)};
        const uint32_t d_s_d_q =
            lane_address_rows_first(d_s_tile, d_q_place.query_row, 0, d_q_place.lane);
        const uint32_t k_d_q =
            lane_address_rows_first(k_tile, 0, d_q_place.d_q_column, d_q_place.lane);
        AccumulatorRegister d_q[d_q_fragments][4] = {};
#pragma unroll
        for (int key = 0; key < block_kv; key += mma_k) {
            OperandRegister d_s[4];
            ldmatrix_x4(d_s, ScoreTile::moved(d_s_d_q, 0, key));
#pragma unroll
            for (int pair = 0; pair < d_q_fragments / 2; ++pair) {
                OperandRegister k[4];
                ldmatrix_x4_transposed(k, KvTile::moved(k_d_q, key, pair * 16));
                mma_m16n8k16<Element>(d_q[2 * pair], d_s, k[0], k[1]);
                mma_m16n8k16<Element>(d_q[2 * pair + 1], d_s, k[2], k[3]);
                repeat_products<2>(d_k, d_s);
            }
        }
        float* d_q_accumulator =
            arguments.d_q_accumulator +
            (head_row + query_start + d_q_place.query_row + d_q_place.fragment_row) * head_dim +
            d_q_place.d_q_column + d_q_place.fragment_column;
#pragma unroll
        for (int fragment = 0; fragment < d_q_fragments; ++fragment) {
            float* address = d_q_accumulator + fragment * mma_n;
            reduce_add_global(address, d_q[fragment][0], d_q[fragment][1]);
            reduce_add_global(address + 8 * head_dim, d_q[fragment][2], d_q[fragment][3]);
        }
    }

    allow_next_kernel();

    // The block owns its rows of dK and dV: plain stores, two elements each.
    const Place place{opaque(thread)};
    auto* d_k_out = static_cast<Element*>(arguments.d_k);
    auto* d_v_out = static_cast<Element*>(arguments.d_v);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int64_t row = kv_start + place.key_row + place.fragment_row + half * 8;
        Element* d_k_row = d_k_out + index.batch * arguments.d_k_strides.batch +
                           index.head * arguments.d_k_strides.head +
                           row * arguments.d_k_strides.seqlen + place.d_kv_column +
                           place.fragment_column;
        Element* d_v_row = d_v_out + index.batch * arguments.d_v_strides.batch +
                           index.head * arguments.d_v_strides.head +
                           row * arguments.d_v_strides.seqlen + place.d_kv_column +
                           place.fragment_column;
#pragma unroll
        for (int fragment = 0; fragment < d_kv_fragments; ++fragment) {
            *reinterpret_cast<uint32_t*>(d_k_row + fragment * mma_n) =
                pack<Element>(d_k[fragment][half * 2] * arguments.softmax_scale,
                              d_k[fragment][half * 2 + 1] * arguments.softmax_scale);
            *reinterpret_cast<uint32_t*>(d_v_row + fragment * mma_n) =
                pack<Element>(d_v[fragment][half * 2], d_v[fragment][half * 2 + 1]);
        }
    }
}

}  // namespace backlight::kernel
