#pragma once

#include "subcommand.hpp"

namespace backlight::tool {

/// The subcommand `tune`.
void add_tune(const Setup& setup);

}  // namespace backlight::tool
