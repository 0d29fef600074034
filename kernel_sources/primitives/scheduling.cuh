// Hints to the compiler that produce no instruction.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// The same value, of which the compiler knows nothing more: what is computed from it inside a loop
/// is computed there, not held in registers across the loop.
__device__ __forceinline__ uint32_t opaque(uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}

}  // namespace backlight::kernel
