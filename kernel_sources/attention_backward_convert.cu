// After the main backward kernel: dQ = softmax_scale · accumulator, rounded to the element type and
// stored with dQ's strides.
//
// The accumulator holds rows; or, of a kernel whose warps add their results as they hold them, the
// 16×8 fragments of mma (see mma.cuh), those of the same 16 rows one after another, and in each the
// four numbers of every lane.
#include "arguments/attention_backward.h"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim;
using Element = specialisation::Element;

/// A block's part of the tensors.
struct Rows {
    const float* accumulator;  // of the head
    Element* d_q;              // of the head
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

/// A thread converts what four lanes of mma hold of a fragment: eight elements of each of two rows.
/// A warp reads four whole fragments and stores pieces of 64 bytes. seqlen_q is a multiple of 16.
__device__ __forceinline__ void convert_fragments(const Rows& rows) {
    constexpr int fragment_rows = 16;
    constexpr int fragment_columns = 8;
    constexpr int fragments_per_warp = 4;
    constexpr int warps_across = head_dim / (fragment_columns * fragments_per_warp);
    constexpr int rows_per_step =
        specialisation::threads / warp_size / warps_across * fragment_rows;
    constexpr int steps = specialisation::rows_per_block / rows_per_step;
    static_assert(steps * rows_per_step == specialisation::rows_per_block, "whole steps");

    const int warp = static_cast<int>(threadIdx.x) / warp_size;
    const int lane = static_cast<int>(threadIdx.x) % warp_size;
    const int fragment = warp % warps_across * fragments_per_warp + lane % fragments_per_warp;
    const int row_in_fragment = lane / fragments_per_warp;
    const int first_row = rows.first + warp / warps_across * fragment_rows;
    float4 held[steps][4];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step;
        if (row < rows.seqlen_q) {
            const float4* source = reinterpret_cast<const float4*>(
                rows.accumulator + row * head_dim + fragment * fragment_rows * fragment_columns +
                row_in_fragment * 16);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                held[step][i] = source[i];
            }
        }
    }
    const float scale = rows.scale;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step;
        if (row < rows.seqlen_q) {
            const float4(&lanes)[4] = held[step];
            Element* d_q =
                rows.d_q + (row + row_in_fragment) * rows.stride + fragment * fragment_columns;
            *reinterpret_cast<uint4*>(d_q) =
                uint4{pack<Element>(lanes[0].x * scale, lanes[0].y * scale),
                      pack<Element>(lanes[1].x * scale, lanes[1].y * scale),
                      pack<Element>(lanes[2].x * scale, lanes[2].y * scale),
                      pack<Element>(lanes[3].x * scale, lanes[3].y * scale)};
            *reinterpret_cast<uint4*>(d_q + 8 * rows.stride) =
                uint4{pack<Element>(lanes[0].z * scale, lanes[0].w * scale),
                      pack<Element>(lanes[1].z * scale, lanes[1].w * scale),
                      pack<Element>(lanes[2].z * scale, lanes[2].w * scale),
                      pack<Element>(lanes[3].z * scale, lanes[3].w * scale)};
        }
    }
}

extern "C" __global__ void __launch_bounds__(specialisation::threads)
    attention_backward_convert(const __grid_constant__ ConvertArguments arguments) {
    const int row_blocks =
        (arguments.seqlen_q + specialisation::rows_per_block - 1) / specialisation::rows_per_block;
    const int64_t batch_head = blockIdx.x / row_blocks;
    const int64_t batch = batch_head / arguments.heads;
    const int64_t head = batch_head % arguments.heads;

    Rows rows;
    rows.accumulator = arguments.d_q_accumulator + batch_head * arguments.seqlen_q * head_dim;
    rows.d_q = static_cast<Element*>(arguments.d_q) + batch * arguments.d_q_strides.batch +
               head * arguments.d_q_strides.head;
    rows.stride = arguments.d_q_strides.seqlen;
    rows.first = static_cast<int>(blockIdx.x % row_blocks) * specialisation::rows_per_block;
    rows.seqlen_q = arguments.seqlen_q;
    rows.scale = arguments.softmax_scale;

    // The accumulator is complete when every block of the main kernel has ended.
    wait_for_previous_kernel();

    if constexpr (specialisation::accumulator_in_fragment_order) {
        convert_fragments(rows);
    } else {
        convert_rows(rows);
    }
}

}  // namespace backlight::kernel
