// Conversion between fp32 and pairs of 16-bit elements packed in a register, low element first.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Rounds two fp32 numbers to nearest even and packs them, `low` in the low half.
template <typename Element>
__device__ __forceinline__ uint32_t pack(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack<bf16>(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

template <>
__device__ __forceinline__ uint32_t pack<fp16>(float low, float high) {
    uint32_t packed;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

/// The two elements of a packed register in fp32; exact.
template <typename Element>
__device__ __forceinline__ float2 unpack(uint32_t packed);

template <>
__device__ __forceinline__ float2 unpack<bf16>(uint32_t packed) {
    // A bfloat16 is the upper half of an fp32 number.
    return float2{__uint_as_float(packed << 16), __uint_as_float(packed & 0xffff0000u)};
}

template <>
__device__ __forceinline__ float2 unpack<fp16>(uint32_t packed) {
    float2 pair;
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;\n"
        "}"
        : "=f"(pair.x), "=f"(pair.y)
        : "r"(packed));
    return pair;
}

}  // namespace backlight::kernel
