#pragma once

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"

namespace backlight::attention {

/// Warps of mma_resident where heads are wide.
inline constexpr int wide_warps = 8;

/// The configuration as it is for the problem: where heads are wide one of mma_resident for others
/// gets the warps that these need, and as many places of dO as fit the target. So a preset serves
/// all head dimensions. Any other configuration is left as it is, for validation to judge.
TileConfig fitted_config(const TileConfig& config, const AttentionProblem& problem,
                         const device::Target& target) noexcept;

}  // namespace backlight::attention
