// Stores of neighbouring elements of a gradient, rounded to its type where that is not fp32.
#pragma once

#include "primitives/conversion.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

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
