#pragma once

#include <string>

namespace backlight::tool {

/// Whether the file could be written now, which is to be asked before a long measurement. Leaves
/// what is there as it is, and nothing where there was nothing.
bool can_be_written(const std::string& file);

}  // namespace backlight::tool
