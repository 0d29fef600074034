#pragma once

#include <span>

#include "compiler/embedded_sources.hpp"

namespace backlight::emulation {

/// The files of device_headers/: what a kernel compiled for the host includes in place of the real
/// primitives, and what makes CUDA C++ of it.
std::span<const compiler::EmbeddedSource> device_headers() noexcept;

}  // namespace backlight::emulation
