#pragma once

#include <filesystem>
#include <optional>

namespace backlight::emulation {

/// The C++ compiler that kernels of the emulated device are built with: $BACKLIGHT_CXX, else $CXX,
/// else c++, g++ or clang++ on PATH. A name without a slash is looked for on PATH. Nothing where
/// BACKLIGHT_CXX is set and is no program: another compiler than the one asked for would surprise.
/// CXX belongs to the user's builds, and where it is no program (it may hold options too) the rest
/// is tried.
std::optional<std::filesystem::path> find_host_compiler();

}  // namespace backlight::emulation
