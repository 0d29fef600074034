// Programmatic dependent launch; see kernel_sources/primitives/dependent_launch.cuh.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

inline void wait_for_previous_kernel(emulation::Site site = emulation::Site::here()) {
    emulation::machine->wait_for_previous_kernel(site);
}

inline void allow_next_kernel(emulation::Site site = emulation::Site::here()) {
    emulation::machine->allow_next_kernel(site);
}

}  // namespace backlight::kernel
