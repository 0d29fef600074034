#pragma once

#include "verify.hpp"

namespace backlight::tool {

/// `verify --grid`: every kernel on the share of the grid that it takes, with a table, and how many
/// problems it does not take for which feature. Returns 0, or 1 if a problem failed. Throws Error.
int verify_grid(const VerifyOptions& options);

}  // namespace backlight::tool
