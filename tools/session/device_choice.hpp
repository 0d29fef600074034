#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "emulation/emulated_runtime.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// Which device to use: a CUDA device by its ordinal, or the emulated one.
struct DeviceChoice {
    int ordinal = 0;
    /// Given: the emulated device, and `ordinal` does not count.
    std::optional<emulation::EmulationOptions> emulation = std::nullopt;
};

/// What `--device` says: an ordinal, or "emulated". Throws `invalid_argument` with the text and the
/// rule, as `parse_grid_order` does.
DeviceChoice parse_device(std::string_view text);

/// "ascending", "descending" or "random".
emulation::GridOrder parse_grid_order(std::string_view text);
const char* to_string(emulation::GridOrder order) noexcept;

/// A session on the chosen device, with the environment's driver, compiler and cache.
std::unique_ptr<Session> open_session(const DeviceChoice& choice);

}  // namespace backlight::tool
