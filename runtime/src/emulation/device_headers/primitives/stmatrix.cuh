// stmatrix; see kernel_sources/primitives/stmatrix.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Reads the registers, which may be filled only now, and stores them.
template <int matrices>
void stmatrix(uint32_t address, bool transposed, const OperandRegister (&fragment)[matrices],
              emulation::Site site) {
    uint32_t values[matrices];
    for (int i = 0; i < matrices; ++i) {
        values[i] = fragment[i];
    }
    emulation::machine->stmatrix(address, matrices, transposed, values, site);
}

inline void stmatrix_x1(uint32_t address, const OperandRegister (&fragment)[1],
                        emulation::Site site = emulation::Site::here()) {
    stmatrix(address, false, fragment, site);
}

inline void stmatrix_x2(uint32_t address, const OperandRegister (&fragment)[2],
                        emulation::Site site = emulation::Site::here()) {
    stmatrix(address, false, fragment, site);
}

inline void stmatrix_x4(uint32_t address, const OperandRegister (&fragment)[4],
                        emulation::Site site = emulation::Site::here()) {
    stmatrix(address, false, fragment, site);
}

inline void stmatrix_x1_transposed(uint32_t address, const OperandRegister (&fragment)[1],
                                   emulation::Site site = emulation::Site::here()) {
    stmatrix(address, true, fragment, site);
}

inline void stmatrix_x2_transposed(uint32_t address, const OperandRegister (&fragment)[2],
                                   emulation::Site site = emulation::Site::here()) {
    stmatrix(address, true, fragment, site);
}

inline void stmatrix_x4_transposed(uint32_t address, const OperandRegister (&fragment)[4],
                                   emulation::Site site = emulation::Site::here()) {
    stmatrix(address, true, fragment, site);
}

}  // namespace backlight::kernel
