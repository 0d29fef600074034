// Runs before the main backward kernel: computes delta = rowsum(dO ∘ O) and LSE · log2(e) of every
// query row, and zeroes the fp32 accumulator of dQ: where the main kernel converts dQ itself, as
// many heads as have a place in it, and the counters by which its blocks tell each other how far
// they have come. Where dQ is summed in one order, the counters of turns too.
//
// The kernel only moves bytes: it reads O and dO once and writes the accumulator, 16 bytes a thread
// at a time, with the loads of all its rows in flight before the first is used.
//
// Where sequences are packed, the first blocks prepare what the others need to know of them, a warp
// a sequence.
#include "arguments/attention_backward.h"
#include "arguments/packing.h"
#include "attention_backward_packing/prepare.cuh"
#include "attention_backward_packing/sequences.cuh"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/exponential.cuh"
#include "primitives/reduction.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim;
using specialisation::packed;
using Element = specialisation::Element;

constexpr int elements_per_lane = 8;  // 16 bytes
// Lanes that share a row are a power of two: where the tiles of O have three panels, that of four.
constexpr int lanes_per_row = (tile_columns_v == 192 ? 256 : tile_columns_v) / elements_per_lane;
constexpr int rows_per_step = specialisation::threads / lanes_per_row;
constexpr int steps = specialisation::rows_per_block / rows_per_step;
static_assert(steps * rows_per_step == specialisation::rows_per_block, "whole steps");
static_assert(warp_size % lanes_per_row == 0, "a row lies within a warp");

__device__ __forceinline__ float dot_pair(uint32_t a, uint32_t b) {
    const float2 x = unpack<Element>(a);
    const float2 y = unpack<Element>(b);
    return x.x * y.x + x.y * y.y;
}

/// Where kernels with keys as rows look for a query's statistics. A thread of a product's result
/// holds columns 2t, 2t + 1, 2t + 8, 2t + 9 of each group of sixteen: they come to lie next to each
/// other.
__device__ __forceinline__ int64_t fragment_order(int64_t row) {
    const int column = static_cast<int>(row % 16);
    return row - column + column / 2 % 4 * 4 + column / 8 * 2 + column % 2;
}

template <bool packed>
struct ArgumentsOf {
    using Type = DeltaArguments;
};
template <>
struct ArgumentsOf<true> {
    using Type = PackedDeltaArguments;
};
using Arguments = ArgumentsOf<packed>::Type;

/// Rows of a head of a packed sequence that a block works on.
struct PackedBlock {
    int begin;  // of the sequence in the tensors
    int first_row;
    int seqlen_q;
    int padded_seqlen_q;
    int64_t head;
    int64_t flat_row;  // of the sequence's head in the workspace

    /// The offset of the sequence in a tensor.
    __device__ __forceinline__ int64_t rows_before(int64_t stride) const {
        return packed ? begin * stride : 0;
    }
};

/// False where a block has no rows. Blocks that prepare come first: the main kernel's first need is
/// what they write.
template <typename Arguments>
__device__ __forceinline__ bool find_packed_block(const Arguments& arguments, uint32_t map_places,
                                                  PackedBlock& block) {
    constexpr int warps = specialisation::threads / warp_size;
    const Packing& packing = arguments.packing;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int preparing = (packing.sequences + warps - 1) / warps;
    if (static_cast<int>(blockIdx.x) < preparing) {
        const int warp = static_cast<int>(threadIdx.x) / warp_size;
        const int sequence = static_cast<int>(blockIdx.x) * warps + warp;
        if (sequence < packing.sequences) {
            constexpr int map_bytes = packed_operands * static_cast<int>(sizeof(TensorMap));
            prepare_sequence(arguments, sequence, map_places + warp * map_bytes, lane);
        }
        return false;
    }
    const int index = static_cast<int>(blockIdx.x) - preparing;
    const int row_blocks =
        packed_row_blocks(packing.q, packing.sequences, specialisation::rows_per_block);
    const SequenceBlock found(packing.q, packing.sequences, index % row_blocks,
                              specialisation::rows_per_block, lane);
    block.begin = found.rows.begin;
    block.first_row = found.first_row;
    block.seqlen_q = found.rows.length;
    block.padded_seqlen_q = whole_tiles(found.rows.length, specialisation::query_tile_rows);
    block.head = index / row_blocks;
    const int64_t first_row =
        first_workspace_row(found.rows.begin, found.sequence, specialisation::query_tile_rows);
    block.flat_row = first_row * arguments.heads + block.head * block.padded_seqlen_q;
    return found.first_row >= 0 && found.first_row < block.padded_seqlen_q;
}

extern "C" __global__ void __launch_bounds__(specialisation::threads)
    attention_backward_delta(const __grid_constant__ Arguments arguments) {
    // The main kernel may take its place on the multiprocessors as these blocks leave; it waits for
    // their results.
    allow_next_kernel();

    PackedBlock packed_block;
    if constexpr (packed) {
        extern __shared__ __align__(1024) unsigned char shared_memory[];
        if (!find_packed_block(arguments, shared_address(shared_memory), packed_block)) {
            return;
        }
    }
    const int padded_seqlen_q = packed                                ? packed_block.padded_seqlen_q
                                : specialisation::partial_query_tiles ? arguments.padded_seqlen_q
                                                                      : arguments.seqlen_q;
    const int row_blocks =
        (padded_seqlen_q + specialisation::rows_per_block - 1) / specialisation::rows_per_block;
    const int64_t batch_head = blockIdx.x / row_blocks;
    if constexpr (specialisation::counts_progress && !packed) {
        if (threadIdx.x == 0 && blockIdx.x % row_blocks == 0) {
            arguments.counters.added[batch_head] = 0;
            arguments.counters.converted[batch_head] = 0;
            if (blockIdx.x == 0) {
                *arguments.counters.tickets = 0;
            }
        }
    }
    if constexpr (specialisation::deterministic && packed) {
        // Of the tiles that begin in the block's rows.
        constexpr int tile_rows = specialisation::query_tile_rows;
        const int row = whole_tiles(packed_block.first_row, tile_rows) +
                        static_cast<int>(threadIdx.x) * tile_rows;
        if (row < min(packed_block.first_row + specialisation::rows_per_block, padded_seqlen_q)) {
            arguments.turns[(packed_block.flat_row + row) / tile_rows] = 0;
        }
    } else if constexpr (specialisation::deterministic) {
        // No more than there are threads.
        const int tile = static_cast<int>(blockIdx.x % row_blocks) * specialisation::threads +
                         static_cast<int>(threadIdx.x);
        if (tile < arguments.query_tiles) {
            arguments.turns[batch_head * arguments.query_tiles + tile] = 0;
        }
    }
    const int first_row =
        packed ? packed_block.first_row
               : static_cast<int>(blockIdx.x % row_blocks) * specialisation::rows_per_block;
    const int64_t batch = batch_head / arguments.heads;
    const int64_t head = packed ? packed_block.head : batch_head % arguments.heads;

    const int lane_in_row = static_cast<int>(threadIdx.x) % lanes_per_row;
    const int row_in_step = static_cast<int>(threadIdx.x) / lanes_per_row;

    const Element* o = static_cast<const Element*>(arguments.o) +
                       (packed ? packed_block.begin * arguments.o_strides.seqlen
                               : batch * arguments.o_strides.batch) +
                       head * arguments.o_strides.head + lane_in_row * elements_per_lane;
    const Element* d_o = static_cast<const Element*>(arguments.d_o) +
                         (packed ? packed_block.begin * arguments.d_o_strides.seqlen
                                 : batch * arguments.d_o_strides.batch) +
                         head * arguments.d_o_strides.head + lane_in_row * elements_per_lane;
    const float* lse = arguments.lse +
                       (packed ? packed_block.begin : batch * arguments.lse_stride_batch) +
                       head * arguments.lse_stride_head;

    // Lanes behind the last column have nothing to load.
    const bool has_columns = columns_v == lanes_per_row * elements_per_lane ||
                             lane_in_row * elements_per_lane < columns_v;
    uint4 o_chunk[steps];
    uint4 d_o_chunk[steps];
    float row_lse[steps];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step + row_in_step;
        if (row < (packed ? packed_block.seqlen_q : arguments.seqlen_q) && has_columns) {
            o_chunk[step] = *reinterpret_cast<const uint4*>(o + row * arguments.o_strides.seqlen);
            d_o_chunk[step] =
                *reinterpret_cast<const uint4*>(d_o + row * arguments.d_o_strides.seqlen);
        } else {
            o_chunk[step] = uint4{0, 0, 0, 0};
            d_o_chunk[step] = uint4{0, 0, 0, 0};
        }
        // Of rows that only fill a tile P is 0 too.
        row_lse[step] =
            row < (packed ? packed_block.seqlen_q : arguments.seqlen_q) ? lse[row] : -infinity();
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int row = first_row + step * rows_per_step + row_in_step;
        const uint4 a = o_chunk[step];
        const uint4 b = d_o_chunk[step];
        // Every lane takes part in the sum, also one whose row does not exist.
        const float delta = warp_sum<lanes_per_row>(dot_pair(a.x, b.x) + dot_pair(a.y, b.y) +
                                                    dot_pair(a.z, b.z) + dot_pair(a.w, b.w));
        if (row >= padded_seqlen_q) {
            continue;
        }
        const int64_t flat_row =
            (packed ? packed_block.flat_row : batch_head * padded_seqlen_q) + row;
        if (lane_in_row == 0) {
            // P of a row whose LSE is infinite is 0: of one that attended to nothing it must not
            // become exp(+inf), nor dS 0 · NaN where O holds no numbers.
            const bool attends = row_lse[step] != -infinity() && row_lse[step] != infinity();
            const float lse_log2 = attends ? row_lse[step] * log2_e : infinity();
            const float row_delta = attends ? delta : 0;
            if constexpr (specialisation::statistics_in_fragment_order) {
                const int64_t place = fragment_order(flat_row);
                arguments.negated_lse_log2[place] = -lse_log2;
                arguments.negated_delta[place] = -row_delta;
            } else {
                arguments.row_statistics[flat_row] = RowStatistics{lse_log2, row_delta};
            }
        }
        if (!packed && batch_head >= arguments.accumulator_heads) {
            continue;
        }
        // Two 16-byte stores a lane, each of them contiguous across the row's lanes.
        float4* accumulator =
            reinterpret_cast<float4*>(arguments.d_q_accumulator + flat_row * head_dim);
        if constexpr (head_dim == lanes_per_row * elements_per_lane) {
            accumulator[lane_in_row] = float4{0, 0, 0, 0};
            accumulator[lane_in_row + lanes_per_row] = float4{0, 0, 0, 0};
        } else {
            // Of a row of Q, which is wider or narrower than one of O.
            for (int quad = lane_in_row; quad < head_dim / 4; quad += lanes_per_row) {
                accumulator[quad] = float4{0, 0, 0, 0};
            }
        }
    }
}

}  // namespace backlight::kernel
