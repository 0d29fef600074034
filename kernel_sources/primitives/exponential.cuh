// Base-2 exponential of the special function unit, and its limits.
#pragma once

namespace backlight::kernel {

constexpr float log2_e = 1.4426950408889634f;

__device__ __forceinline__ float infinity() {
    return __int_as_float(0x7f800000);
}

/// 2^x, about 2 ulp; -inf gives 0, subnormal results are flushed to 0.
__device__ __forceinline__ float exp2_approximate(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

}  // namespace backlight::kernel
