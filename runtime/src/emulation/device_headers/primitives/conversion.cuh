// Conversion between fp32 and pairs of 16-bit elements; see
// kernel_sources/primitives/conversion.cuh.
#pragma once

#include "emulator/machine.h"
#include "primitives/types.cuh"

namespace backlight::kernel {

template <typename Element>
inline constexpr emulation::ElementType element_type = emulation::ElementType::bf16;
template <>
inline constexpr emulation::ElementType element_type<fp16> = emulation::ElementType::fp16;
template <>
inline constexpr emulation::ElementType element_type<float> = emulation::ElementType::fp32;

template <typename Element>
uint32_t pack(float low, float high) {
    return emulation::machine->pack(element_type<Element>, low, high);
}

template <typename Element>
float2 unpack(uint32_t packed) {
    float2 pair;
    emulation::machine->unpack(element_type<Element>, packed, &pair.x, &pair.y);
    return pair;
}

}  // namespace backlight::kernel
