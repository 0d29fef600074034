// wgmma; see kernel_sources/primitives/wgmma.cuh.
#pragma once

#include "primitives/conversion.cuh"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

inline void wgmma_fence(emulation::Site site = emulation::Site::here()) {
    emulation::machine->wgmma_fence(site);
}

inline void wgmma_commit(emulation::Site site = emulation::Site::here()) {
    emulation::machine->wgmma_commit(site);
}

template <int groups_pending>
void wgmma_wait(emulation::Site site = emulation::Site::here()) {
    static_assert(groups_pending >= 0 && groups_pending <= 7, "0 to 7 groups");
    emulation::machine->wgmma_wait(groups_pending, site);
}

/// Concerns the device's compiler alone: here each use of a register is checked where it is.
template <typename Register, int count>
void wgmma_settle(Register (&)[count]) {}

template <int n>
constexpr bool wgmma_width = n == 32 || n == 64 || n == 96 || n == 128 || n == 192 || n == 256;

template <typename Element, int n, Major a_major, Major b_major>
void wgmma_m64k16(AccumulatorRegister (&d)[n / 2], MatrixDescriptor a, MatrixDescriptor b,
                  bool accumulate, emulation::Site site = emulation::Site::here()) {
    static_assert(wgmma_width<n>, "n is 32, 64, 96, 128, 192 or 256");
    emulation::machine->wgmma({.type = element_type<Element>,
                               .columns = n,
                               .accumulators = d,
                               .a = nullptr,
                               .a_descriptor = a.bits,
                               .b_descriptor = b.bits,
                               .a_major = static_cast<emulation::Major>(a_major),
                               .b_major = static_cast<emulation::Major>(b_major),
                               .accumulate = accumulate},
                              site);
}

template <typename Element, int n, Major b_major>
void wgmma_m64k16(AccumulatorRegister (&d)[n / 2], const OperandRegister (&a)[4],
                  MatrixDescriptor b, bool accumulate,
                  emulation::Site site = emulation::Site::here()) {
    static_assert(wgmma_width<n>, "n is 32, 64, 96, 128, 192 or 256");
    emulation::machine->wgmma({.type = element_type<Element>,
                               .columns = n,
                               .accumulators = d,
                               .a = a,
                               .a_descriptor = 0,
                               .b_descriptor = b.bits,
                               .a_major = emulation::Major::k,
                               .b_major = static_cast<emulation::Major>(b_major),
                               .accumulate = accumulate},
                              site);
}

}  // namespace backlight::kernel
