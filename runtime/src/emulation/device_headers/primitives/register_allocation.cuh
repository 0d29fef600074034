// setmaxnreg; see kernel_sources/primitives/register_allocation.cuh.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

template <int registers>
void decrease_registers(emulation::Site site = emulation::Site::here()) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    emulation::machine->set_registers(registers, false, site);
}

template <int registers>
void increase_registers(emulation::Site site = emulation::Site::here()) {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    emulation::machine->set_registers(registers, true, site);
}

}  // namespace backlight::kernel
