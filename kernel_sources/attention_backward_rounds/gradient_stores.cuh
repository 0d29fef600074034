// Stores of neighbouring elements of a gradient, rounded to its type where that is not fp32; and
// the sums with what it holds already, where it is added to. These are made before, of many
// elements at a time: no load may overtake a store that it could be of.
#pragma once

#include "primitives/conversion.cuh"
#include "primitives/mma.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"

namespace backlight::kernel {

/// held + scale · sum, each rounded: the very bits of a gradient that is stored and added later.
__device__ __forceinline__ float added(float held, float sum, float scale) {
    return __fadd_rn(held, __fmul_rn(sum, scale));
}

template <typename Gradient>
__device__ __forceinline__ float2 added_two(const Gradient* held, float first, float second,
                                            float scale) {
    const float2 pair = *reinterpret_cast<const float2*>(held);
    return {added(pair.x, first, scale), added(pair.y, second, scale)};
}

/// Of a thread's two rows of an accumulator one, with what it is added to.
template <int columns, int fragments, typename Gradient>
__device__ __forceinline__ void add_row(AccumulatorRegister (&sums)[fragments][4], int half,
                                        const Gradient* held, float scale) {
#pragma unroll
    for (int fragment = 0; fragment < fragments; ++fragment) {
        if (fragment * mma_n < columns) {
            const float2 pair = added_two(held + fragment * mma_n, sums[fragment][half * 2],
                                          sums[fragment][half * 2 + 1], scale);
            sums[fragment][half * 2] = pair.x;
            sums[fragment][half * 2 + 1] = pair.y;
        }
    }
}

/// By which a sum is still to be multiplied when it is stored.
__device__ __forceinline__ float scale_at_store(float scale) {
    return specialisation::accumulates_gradients ? 1.0F : scale;
}

template <typename Gradient>
__device__ __forceinline__ void store_two(Gradient* to, float first, float second) {
    *reinterpret_cast<uint32_t*>(to) = pack<Gradient>(first, second);
}
template <>
__device__ __forceinline__ void store_two<float>(float* to, float first, float second) {
    *reinterpret_cast<float2*>(to) = float2{first, second};
}

/// Multiplied by `scale` before.
template <typename Gradient>
__device__ __forceinline__ void store_eight(Gradient* to, float2 a, float2 b, float2 c, float2 d,
                                            float scale) {
    *reinterpret_cast<uint4*>(to) =
        uint4{pack<Gradient>(a.x * scale, a.y * scale), pack<Gradient>(b.x * scale, b.y * scale),
              pack<Gradient>(c.x * scale, c.y * scale), pack<Gradient>(d.x * scale, d.y * scale)};
}
template <>
__device__ __forceinline__ void store_eight<float>(float* to, float2 a, float2 b, float2 c,
                                                   float2 d, float scale) {
    float4* const quads = reinterpret_cast<float4*>(to);
    quads[0] = float4{a.x * scale, a.y * scale, b.x * scale, b.y * scale};
    quads[1] = float4{c.x * scale, c.y * scale, d.x * scale, d.y * scale};
}

}  // namespace backlight::kernel
