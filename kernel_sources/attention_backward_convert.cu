// After the main backward kernel: dQ = softmax_scale · accumulator, rounded to the element type and
// stored with dQ's strides; or fp32, and added to what is there.
//
// The accumulator holds rows; or, of a kernel whose warps add their results as they hold them,
// fragments (see d_q_fragments.cuh).
#include "arguments/attention_backward.h"
#include "arguments/packing.h"
#include "attention_backward_mma_resident/d_q_fragments.cuh"
#include "attention_backward_packing/sequences.cuh"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim;
using Element = specialisation::Element;

/// A block's part of the tensors.
struct Rows {
    const float* accumulator;  // of the head
    Gradient* d_q;             // of the head
    int64_t stride;            // of dQ, from row to row
    int first;
    int seqlen_q;
    float scale;
};

/// A thread converts eight neighbouring elements of a row, of several rows: 32 bytes in, 16 out.
__device__ __forceinline__ void convert_rows(const Rows& rows) {
    constexpr int elements_per_lane = 8;
    constexpr int lanes_per_row = head_dim / elements_per_lane;
    constexpr int rows_per_step = specialisation::threads / lanes_per_row;
    constexpr int steps = specialisation::rows_per_block / rows_per_step;
    static_assert(steps * rows_per_step == specialisation::rows_per_block, "whole steps");

    const int first_row = rows.first + static_cast<int>(threadIdx.x) / lanes_per_row;
    const int column = static_cast<int>(threadIdx.x) % lanes_per_row * elements_per_lane;
    float4 sums[steps][2];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step;
        if (row < rows.seqlen_q) {
            const float4* source =
                reinterpret_cast<const float4*>(rows.accumulator + row * head_dim + column);
            sums[step][0] = source[0];
            sums[step][1] = source[1];
        }
    }
    const float scale = rows.scale;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step;
        if (row < rows.seqlen_q) {
            const float4 low = sums[step][0];
            const float4 high = sums[step][1];
            *reinterpret_cast<uint4*>(rows.d_q + row * rows.stride + column) =
                uint4{pack<Element>(low.x * scale, low.y * scale),
                      pack<Element>(low.z * scale, low.w * scale),
                      pack<Element>(high.x * scale, high.y * scale),
                      pack<Element>(high.z * scale, high.w * scale)};
        }
    }
}

/// Pieces of fragments instead.
__device__ __forceinline__ void convert_fragments(const Rows& rows) {
    using Pieces = FragmentRows<head_dim, specialisation::threads>;
    constexpr int steps = specialisation::rows_per_block / Pieces::rows_a_step;
    static_assert(steps * Pieces::rows_a_step == specialisation::rows_per_block, "whole steps");

    const Pieces pieces(static_cast<int>(threadIdx.x));
    FragmentPiece held[steps];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = rows.first + pieces.first_row + step * Pieces::rows_a_step;
        if (row < rows.seqlen_q) {
            held[step].load(pieces.source(rows.accumulator, row));
        }
    }
    if constexpr (specialisation::accumulates_gradients) {
#pragma unroll
        for (int step = 0; step < steps; ++step) {
            const int64_t row = rows.first + pieces.first_row + step * Pieces::rows_a_step;
            if (row < rows.seqlen_q) {
                held[step].add(pieces.destination(rows.d_q, row, rows.stride), rows.stride,
                               rows.scale, pieces.rows_from(row, rows.seqlen_q));
            }
        }
    }
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = rows.first + pieces.first_row + step * Pieces::rows_a_step;
        if (row < rows.seqlen_q) {
            held[step].store(pieces.destination(rows.d_q, row, rows.stride), rows.stride,
                             scale_at_store(rows.scale), pieces.rows_from(row, rows.seqlen_q));
        }
    }
}

/// The rows of the block's own; `any` is false where there are none.
__device__ __forceinline__ Rows rows_of_block(const ConvertArguments& arguments, bool& any) {
    const int row_blocks =
        (arguments.seqlen_q + specialisation::rows_per_block - 1) / specialisation::rows_per_block;
    const int64_t batch_head = blockIdx.x / row_blocks;
    const int64_t batch = batch_head / arguments.heads;
    const int64_t head = batch_head % arguments.heads;

    Rows rows;
    const int padded_seqlen_q =
        specialisation::partial_query_tiles ? arguments.padded_seqlen_q : arguments.seqlen_q;
    rows.accumulator = arguments.d_q_accumulator + batch_head * padded_seqlen_q * head_dim;
    rows.d_q = static_cast<Gradient*>(arguments.d_q) + batch * arguments.d_q_strides.batch +
               head * arguments.d_q_strides.head;
    rows.stride = arguments.d_q_strides.seqlen;
    rows.first = static_cast<int>(blockIdx.x % row_blocks) * specialisation::rows_per_block;
    rows.seqlen_q = arguments.seqlen_q;
    rows.scale = arguments.softmax_scale;
    any = true;
    return rows;
}

__device__ __forceinline__ Rows rows_of_block(const PackedConvertArguments& arguments, bool& any) {
    const ConvertArguments& convert = arguments.convert;
    const int block = static_cast<int>(blockIdx.x);
    const int row_blocks =
        packed_row_blocks(arguments.q, arguments.sequences, specialisation::rows_per_block);
    const int64_t head = block / row_blocks;
    const SequenceBlock found(arguments.q, arguments.sequences, block % row_blocks,
                              specialisation::rows_per_block,
                              static_cast<int>(threadIdx.x) % warp_size);
    const int64_t padded = whole_tiles(found.rows.length, specialisation::query_tile_rows);
    const int64_t first_row =
        first_workspace_row(found.rows.begin, found.sequence, specialisation::query_tile_rows);
    Rows rows;
    rows.accumulator =
        convert.d_q_accumulator + (first_row * convert.heads + head * padded) * head_dim;
    rows.d_q = static_cast<Gradient*>(convert.d_q) + found.rows.begin * convert.d_q_strides.seqlen +
               head * convert.d_q_strides.head;
    rows.stride = convert.d_q_strides.seqlen;
    rows.first = found.first_row;
    rows.seqlen_q = found.rows.length;
    rows.scale = convert.softmax_scale;
    any = found.first_row >= 0 && found.first_row < found.rows.length;
    return rows;
}

template <bool packed>
struct ArgumentsOf {
    using Type = ConvertArguments;
};
template <>
struct ArgumentsOf<true> {
    using Type = PackedConvertArguments;
};
using Arguments = ArgumentsOf<specialisation::packed>::Type;

extern "C" __global__ void __launch_bounds__(specialisation::threads)
    attention_backward_convert(const __grid_constant__ Arguments arguments) {
    bool any;
    const Rows rows = rows_of_block(arguments, any);

    // The accumulator is complete when every block of the main kernel has ended.
    wait_for_previous_kernel();
    if (!any) {
        return;
    }

    if constexpr (specialisation::accumulator_in_fragment_order) {
        convert_fragments(rows);
    } else {
        convert_rows(rows);
    }
}

}  // namespace backlight::kernel
