// Sums; see kernel_sources/primitives/reduction.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

template <int lanes>
float warp_sum(float value, emulation::Site site = emulation::Site::here()) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, distance, site);
    }
    return value;
}

inline void reduce_add_global(float* address, float x, float y,
                              emulation::Site site = emulation::Site::here()) {
    const float values[2] = {x, y};
    emulation::machine->reduce_add_global(address, values, 2, site);
}

inline void reduce_add_global(float* address, float x, float y, float z, float w,
                              emulation::Site site = emulation::Site::here()) {
    const float values[4] = {x, y, z, w};
    emulation::machine->reduce_add_global(address, values, 4, site);
}

}  // namespace backlight::kernel
