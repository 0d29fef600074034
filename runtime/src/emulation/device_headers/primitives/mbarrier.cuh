// mbarrier; see kernel_sources/primitives/mbarrier.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline void mbarrier_initialise(uint32_t barrier, int arrivals,
                                emulation::Site site = emulation::Site::here()) {
    emulation::machine->mbarrier_initialise(barrier, arrivals, site);
}

inline void mbarrier_initialisation_fence(emulation::Site site = emulation::Site::here()) {
    emulation::machine->mbarrier_initialisation_fence(site);
}

inline void mbarrier_arrive(uint32_t barrier, emulation::Site site = emulation::Site::here()) {
    emulation::machine->mbarrier_arrive(barrier, site);
}

inline void mbarrier_arrive_expect_bytes(uint32_t barrier, int bytes,
                                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->mbarrier_arrive_expect_bytes(barrier, bytes, site);
}

inline void mbarrier_wait(uint32_t barrier, int parity,
                          emulation::Site site = emulation::Site::here()) {
    emulation::machine->mbarrier_wait(barrier, parity, site);
}

inline bool mbarrier_try_wait(uint32_t barrier, int parity,
                              emulation::Site site = emulation::Site::here()) {
    return emulation::machine->mbarrier_try_wait(barrier, parity, site);
}

}  // namespace backlight::kernel
