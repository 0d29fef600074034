#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"

namespace backlight::tuning {

/// Whether the problem and the target take the configuration.
bool is_legal(const TileConfig& config, const AttentionProblem& problem,
              const device::Target& target);

/// Every legal way to tile the problem on the target, shared memory included, in the order of
/// `comes_before`. All have run-time lengths and programmatic dependent launch, as TileConfig has
/// by default. Only those of the family, if one is given. Throws what the problem itself is refused
/// for.
std::vector<TileConfig> legal_tiles(const AttentionProblem& problem, const device::Target& target,
                                    std::optional<KernelFamily> family = std::nullopt);

/// The family of that name; nothing for an empty one. Throws `unsupported` with the names there
/// are.
std::optional<KernelFamily> kernel_family(std::string_view name);

/// The other ways to launch the same tiles: with the lengths as constants of the kernel, and
/// without programmatic dependent launch.
std::vector<TileConfig> launch_variants(const TileConfig& config);

/// A strict order of all configurations, the same in every process: the presets, then wgmma's and
/// mma_resident's, then those nearest to what was fast so far (eight warps, few stages). Budgets
/// are spent in it, and ties are broken by it.
bool comes_before(const TileConfig& left, const TileConfig& right);

}  // namespace backlight::tuning
