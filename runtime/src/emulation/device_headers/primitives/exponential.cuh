// Base-2 exponential; see kernel_sources/primitives/exponential.cuh.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

constexpr float log2_e = 1.4426950408889634f;

inline float infinity() {
    return __int_as_float(0x7f800000);
}

/// Correctly rounded, where the device's result is about 2 ulp off.
inline float exp2_approximate(float x) {
    constexpr float smallest_normal = 0x1p-126f;
    const float y = std::exp2(x);
    return y < smallest_normal ? 0.0f : y;
}

}  // namespace backlight::kernel
