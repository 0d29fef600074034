#pragma once

#include "emulation/device_headers/emulator/machine.h"

namespace backlight::emulation {

/// The emulator's side of every primitive: each call goes to the block that the host thread runs.
const Machine& machine_table() noexcept;

}  // namespace backlight::emulation
