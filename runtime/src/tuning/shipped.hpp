#pragma once

#include <span>

#include "compiler/embedded_sources.hpp"
#include "tuning/database.hpp"

namespace backlight::tuning {

/// The files of tuning/shipped/, embedded when the library was built.
std::span<const compiler::EmbeddedSource> shipped_files() noexcept;

/// What is in them, read once.
const Database& shipped_database();

}  // namespace backlight::tuning
