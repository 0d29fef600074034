#pragma once

#include <optional>
#include <span>
#include <string>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::attention {

/// Why kernels do not take a valid problem, as a field, its value and the rule that it breaks.
struct Unsupported {
    std::string value;  // "head_dim is 96"
    std::string rule;   // "it must be 64 or 128"
};

/// What the family's kernels do not take of a valid problem, whatever the tiles; nothing if they
/// take all of it. What a family takes stands in one table, a line a feature.
std::optional<Unsupported> unsupported_feature(const AttentionProblem& problem,
                                               KernelFamily family);

/// Likewise, of lengths that the configuration's tiles do not divide.
std::optional<Unsupported> unsupported_length(const AttentionProblem& problem,
                                              const TileConfig& config);

/// Throws `unsupported`, with what each family lacks, if none of them takes the problem whatever
/// the tiles.
void require_any_family(const AttentionProblem& problem, std::span<const KernelFamily> families);

}  // namespace backlight::attention
