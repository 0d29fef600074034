#pragma once

#include <string>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "compiler/kernel_store.hpp"

namespace backlight::tuning {

/// The digest of the main kernel's cache key: another compiler, source or option gives another.
/// Throws what the problem or the configuration is refused for.
std::string main_kernel_digest(compiler::KernelStore& store, const AttentionProblem& problem,
                               const TileConfig& config, const device::Target& target);

}  // namespace backlight::tuning
