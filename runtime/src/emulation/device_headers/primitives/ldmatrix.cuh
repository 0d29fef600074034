// ldmatrix; see kernel_sources/primitives/ldmatrix.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline void ldmatrix_x1(OperandRegister (&fragment)[1], uint32_t address,
                        emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 1, false, fragment, site);
}

inline void ldmatrix_x2(OperandRegister (&fragment)[2], uint32_t address,
                        emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 2, false, fragment, site);
}

inline void ldmatrix_x4(OperandRegister (&fragment)[4], uint32_t address,
                        emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 4, false, fragment, site);
}

inline void ldmatrix_x1_transposed(OperandRegister (&fragment)[1], uint32_t address,
                                   emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 1, true, fragment, site);
}

inline void ldmatrix_x2_transposed(OperandRegister (&fragment)[2], uint32_t address,
                                   emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 2, true, fragment, site);
}

inline void ldmatrix_x4_transposed(OperandRegister (&fragment)[4], uint32_t address,
                                   emulation::Site site = emulation::Site::here()) {
    emulation::machine->ldmatrix(address, 4, true, fragment, site);
}

}  // namespace backlight::kernel
