// Sums across the lanes of a warp, and into global memory.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Sum over each group of `lanes` consecutive lanes (a power of two); every lane gets it.
template <int lanes>
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    }
    return value;
}

/// Adds two neighbouring fp32 numbers, aligned to 8 bytes, to global memory in one transaction;
/// nothing comes back. The order of additions of different blocks is not fixed.
__device__ __forceinline__ void reduce_add_global(float* address, float x, float y) {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};"
                 :
                 : "l"(address), "f"(x), "f"(y)
                 : "memory");
}

/// The same with four numbers, aligned to 16 bytes.
__device__ __forceinline__ void reduce_add_global(float* address, float x, float y, float z,
                                                  float w) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(address), "f"(x), "f"(y), "f"(z), "f"(w)
                 : "memory");
}

}  // namespace backlight::kernel
