#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backlight/runtime.hpp"

namespace backlight::emulation {

/// In which order the blocks of a grid are started.
enum class GridOrder { ascending, descending, random };

struct EmulationOptions {
    /// Decides every choice of the schedule; the same seed replays the same run.
    std::uint64_t seed = 1;
    GridOrder grid_order = GridOrder::random;
    /// Blocks that are executed at the same time; 0: one a core.
    int host_threads = 0;
    /// The device whose limits are kept, and for which kernels are specialised.
    std::string target = "sm_90a";
    /// Count bank conflicts of every shared-memory instruction.
    bool count_bank_conflicts = false;
    /// Compile kernels for a debugger: nothing optimised away, nothing inlined.
    bool debug_kernels = false;
};

/// A change to one file of a kernel's text before it is compiled: how tests plant faults.
struct SourceEdit {
    /// As sources include it, for example "primitives/swizzle.cuh".
    std::string file;
    /// Must occur, exactly once. Kernels that do not include the file stay as they are.
    std::string from;
    std::string to;
};

/// A Runtime over the emulated device: same planning, specialisation, cache, tensor maps and kernel
/// text; the system's C++ compiler in place of NVRTC. `options` gives the cache directory.
Runtime make_emulated_runtime(const EmulationOptions& emulation, const RuntimeOptions& options = {},
                              std::vector<SourceEdit> edits = {});

}  // namespace backlight::emulation
