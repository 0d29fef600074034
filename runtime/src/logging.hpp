#pragma once

#include <spdlog/logger.h>

namespace backlight {

/// The library's own logger, named `backlight`: warnings and above to standard error, unless the
/// application has registered a logger of that name before the first use. `BACKLIGHT_LOG_LEVEL`
/// (trace, debug, info, warn, err, off) is read once. Never used from a static destructor.
spdlog::logger& logger();

}  // namespace backlight
