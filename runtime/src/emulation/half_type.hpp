#pragma once

#include "backlight/problem.hpp"
#include "emulation/device_headers/emulator/machine.h"

namespace backlight::emulation {

/// The 16-bit type of that name.
constexpr DataType half_type(ElementType type) noexcept {
    return type == ElementType::bf16 ? DataType::bf16 : DataType::fp16;
}

}  // namespace backlight::emulation
