// Loads and stores by shared address; see kernel_sources/primitives/shared_memory.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline uint32_t shared_address(const void* pointer,
                               emulation::Site site = emulation::Site::here()) {
    return emulation::machine->shared_address(pointer, site);
}

inline void store_shared(uint32_t address, uint32_t value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

inline void store_shared(uint32_t address, uint2 value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

inline void store_shared(uint32_t address, uint4 value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

inline void store_shared(uint32_t address, float value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

inline void store_shared(uint32_t address, float2 value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

inline void store_shared(uint32_t address, float4 value,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->store_shared(address, &value, sizeof(value), site);
}

template <typename Value>
Value load_shared(uint32_t address, emulation::Site site = emulation::Site::here()) {
    Value value;
    emulation::machine->load_shared(address, &value, sizeof(value), site);
    return value;
}

}  // namespace backlight::kernel
