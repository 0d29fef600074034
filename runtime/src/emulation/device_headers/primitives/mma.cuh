// mma.m16n8k16; see kernel_sources/primitives/mma.cuh.
#pragma once

#include "primitives/conversion.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

constexpr int mma_m = 16;
constexpr int mma_n = 8;
constexpr int mma_k = 16;

template <typename Element>
void mma_m16n8k16(AccumulatorRegister (&c)[4], const OperandRegister (&a)[4],
                  const OperandRegister& b0, const OperandRegister& b1,
                  emulation::Site site = emulation::Site::here()) {
    emulation::machine->mma_m16n8k16(element_type<Element>, c, a, &b0, &b1, site);
}

}  // namespace backlight::kernel
