// Changes to tensor maps; see kernel_sources/primitives/tensor_map.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline void tensor_map_set_address(uint32_t map, const void* address,
                                   emulation::Site site = emulation::Site::here()) {
    emulation::machine->set_tensor_map_address(map, address, site);
}

template <int dimension>
void tensor_map_set_extent(uint32_t map, int extent,
                           emulation::Site site = emulation::Site::here()) {
    emulation::machine->set_tensor_map_extent(map, dimension, extent, site);
}

inline void publish_tensor_map(void* destination, uint32_t map,
                               emulation::Site site = emulation::Site::here()) {
    __syncwarp(0xffffffffu, site);
    if (backlight_lane() == 0) {
        emulation::machine->publish_tensor_map(destination, map, site);
    }
    __syncwarp(0xffffffffu, site);
}

inline void acquire_tensor_map(const void* map, emulation::Site site = emulation::Site::here()) {
    emulation::machine->acquire_tensor_map(map, site);
}

}  // namespace backlight::kernel
