// After the main backward kernel: dQ = softmax_scale · accumulator, rounded to the element type and
// stored with dQ's strides.
#include "arguments/attention_backward.h"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::head_dim;
using Element = specialisation::Element;

constexpr int elements_per_lane = 8;  // 32 bytes in, 16 bytes out
constexpr int lanes_per_row = head_dim / elements_per_lane;
constexpr int rows_per_step = specialisation::threads / lanes_per_row;
constexpr int steps = specialisation::rows_per_block / rows_per_step;
static_assert(steps * rows_per_step == specialisation::rows_per_block, "whole steps");

extern "C" __global__ void __launch_bounds__(specialisation::threads)
    attention_backward_convert(const __grid_constant__ ConvertArguments arguments) {
    const int row_blocks =
        (arguments.seqlen_q + specialisation::rows_per_block - 1) / specialisation::rows_per_block;
    const int64_t batch_head = blockIdx.x / row_blocks;
    const int first_row =
        static_cast<int>(blockIdx.x % row_blocks) * specialisation::rows_per_block;
    const int64_t batch = batch_head / arguments.heads;
    const int64_t head = batch_head % arguments.heads;

    const int lane_in_row = static_cast<int>(threadIdx.x) % lanes_per_row;
    const int row_in_step = static_cast<int>(threadIdx.x) / lanes_per_row;
    const int column = lane_in_row * elements_per_lane;

    const float* accumulator =
        arguments.d_q_accumulator + batch_head * arguments.seqlen_q * head_dim + column;
    Element* d_q = static_cast<Element*>(arguments.d_q) + batch * arguments.d_q_strides.batch +
                   head * arguments.d_q_strides.head + column;

    // The accumulator is complete when every block of the main kernel has ended.
    wait_for_previous_kernel();

    float4 sums[steps][2];
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step + row_in_step;
        if (row < arguments.seqlen_q) {
            const float4* source = reinterpret_cast<const float4*>(accumulator + row * head_dim);
            sums[step][0] = source[0];
            sums[step][1] = source[1];
        }
    }
    const float scale = arguments.softmax_scale;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
        const int64_t row = first_row + step * rows_per_step + row_in_step;
        if (row < arguments.seqlen_q) {
            const float4 low = sums[step][0];
            const float4 high = sums[step][1];
            *reinterpret_cast<uint4*>(d_q + row * arguments.d_q_strides.seqlen) =
                uint4{pack<Element>(low.x * scale, low.y * scale),
                      pack<Element>(low.z * scale, low.w * scale),
                      pack<Element>(high.x * scale, high.y * scale),
                      pack<Element>(high.z * scale, high.w * scale)};
        }
    }
}

}  // namespace backlight::kernel
