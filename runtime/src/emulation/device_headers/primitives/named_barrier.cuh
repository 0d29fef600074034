// Barriers of a part of a block; see kernel_sources/primitives/named_barrier.cuh.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

inline void named_barrier_synchronise(int barrier, int threads,
                                      emulation::Site site = emulation::Site::here()) {
    emulation::machine->block_barrier(barrier, threads, emulation::BarrierUse::synchronise, site);
}

inline void named_barrier_arrive(int barrier, int threads,
                                 emulation::Site site = emulation::Site::here()) {
    emulation::machine->block_barrier(barrier, threads, emulation::BarrierUse::arrive, site);
}

}  // namespace backlight::kernel
