// Plain stores to shared memory by 32-bit shared address.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

}  // namespace backlight::kernel
