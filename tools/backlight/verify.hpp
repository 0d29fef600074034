#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "problem_features.hpp"
#include "session/device_choice.hpp"
#include "verification_grid.hpp"

namespace backlight::tool {

struct VerifyOptions {
    DeviceChoice device;
    /// Names for `parse_kernel`, and tile configurations as `parse_tile` takes them; both empty:
    /// all presets, and what plans choose where that is none of them.
    std::vector<std::string> kernels;
    std::vector<std::string> tiles;
    /// Empty: 64 and 128.
    std::vector<std::int64_t> head_dims;
    /// Empty: both; on the emulated device, where quick, bf16.
    std::vector<DataType> dtypes;
    /// The problems of the grid in place of the usual ones. Head dimensions, types and repeats are
    /// then those of the grid, or of it what is given; features are the grid's alone.
    std::optional<GridSize> grid;
    /// Of every problem, as far as its own extents and inputs let it.
    ProblemFeatures features;
    /// Runs of each problem; dK and dV must be the same bits each time. On the emulated device each
    /// has another schedule. Not given: 3, or 2 where the emulated device is to be quick.
    std::optional<int> repeats;
    /// A few problems of each group only.
    bool quick = false;
    /// On a CUDA device: the problems of the emulated one, whose dK and dV must be equal to the
    /// GPU's within the rounding of their type.
    bool against_emulated = false;
    /// Where to write every figure; empty: nowhere.
    std::string json;
};

/// Checks kernels against the fp64 host reference on small problems and, on a CUDA device, the fp32
/// reference kernels on large ones, and prints a table. Returns 0, or 1 if a problem failed. Throws
/// Error.
int verify(const VerifyOptions& options);

/// The command line that runs the same problems under the same schedules of the emulated device.
std::string replay_command(const VerifyOptions& options);

}  // namespace backlight::tool
