#pragma once

#include <string_view>

namespace backlight::compiler {

/// Whether one version is newer than another: runs of digits are compared as numbers.
bool is_newer(std::string_view version, std::string_view other) noexcept;

}  // namespace backlight::compiler
