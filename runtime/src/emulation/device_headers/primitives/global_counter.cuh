// Counters in global memory; see kernel_sources/primitives/global_counter.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline uint32_t take_ticket(uint32_t* counter, emulation::Site site = emulation::Site::here()) {
    return emulation::machine->add_global_counter(counter, site);
}

inline void count_global(uint32_t* counter, emulation::Site site = emulation::Site::here()) {
    emulation::machine->add_global_counter(counter, site);
}

inline uint32_t load_global_counter(const uint32_t* counter,
                                    emulation::Site site = emulation::Site::here()) {
    return emulation::machine->load_global_counter(counter, site);
}

template <int nanoseconds>
uint32_t wait_for_global_counter(const uint32_t* counter, uint32_t value,
                                 emulation::Site site = emulation::Site::here()) {
    return emulation::machine->wait_for_global_counter(counter, value, site);
}

}  // namespace backlight::kernel
