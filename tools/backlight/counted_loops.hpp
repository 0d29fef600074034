#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"
#include "loop_bound.hpp"
#include "sass_counts.hpp"

namespace backlight::tool {

/// An iteration of a main loop, by all warps of a thread block that run it.
struct CountedLoop {
    /// Of the first and the last instruction, in bytes from the start of the kernel.
    std::uint64_t first_address = 0;
    std::uint64_t last_address = 0;
    /// Of one warp.
    SassCounts counts;
    /// Warps of a block that run it; the others of a warp-specialised kernel run another.
    int warps = 0;
};

/// What keeps a multiprocessor busy: an iteration of one loop by a block, or of two loops that
/// different warps run at the same time.
struct LoopBound {
    /// Indices of the loops.
    std::vector<std::size_t> loops;
    /// The tensor instructions' operations, over those of a tile of queries and keys. More than
    /// the work that there is shows a branch with products that not every iteration takes.
    double tiles = 0;
    BusyClocks clocks;
};

struct CountedKernel {
    std::vector<CountedLoop> loops;
    /// One of each loop, then one of each pair.
    std::vector<LoopBound> bounds;
};

/// Counts the main kernel `entry` out of its disassembly. Throws `file_error` where the listing
/// has no such function.
CountedKernel count_kernel(std::string_view listing, std::string_view entry,
                           const AttentionProblem& problem, const TileConfig& config,
                           const device::Target& target);

}  // namespace backlight::tool
