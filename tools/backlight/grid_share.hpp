#pragma once

#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "device/target.hpp"
#include "verification_grid.hpp"

namespace backlight::tool {

/// Why the configuration does not take the problem, as features that kernels have or not, "grouped
/// heads" and the like; what the library says, where it is none of these. Empty where it is taken.
std::vector<std::string> features_not_taken(const AttentionProblem& problem,
                                            const TileConfig& config, const device::Target& target);

/// What of a grid a kernel takes.
struct GridShare {
    /// With every pair of values that it takes together.
    std::vector<CheckedProblem> problems;
    /// Problems of the grid for a kernel that takes everything, and how many this one does not.
    int whole = 0;
    int not_taken = 0;
    /// Features that it lacks, with how many of the latter have them; some have several.
    std::vector<std::pair<std::string, int>> lacking;
};

GridShare grid_share(const VerificationGrid& grid, const NamedConfig& kernel,
                     const device::Target& target);

/// "v3 takes 30 of the grid's 150 problems; …" with a line for each feature that it lacks.
std::string share_text(const std::string& kernel, const GridShare& share);

}  // namespace backlight::tool
