#pragma once

#include <string>
#include <vector>

#include "arguments.hpp"
#include "session/gpu.hpp"
#include "support_kernels.hpp"

namespace backlight::tool {

/// What a call costs the host, for one configuration.
struct HostTime {
    std::string kernel;
    AttentionProblem problem;
    /// BackwardPlan::run, the whole chain, again and again with the same pointers: each call.
    std::vector<double> run_microseconds;
    /// The three launches alone, their arguments ready-made: what the driver takes of it.
    std::vector<double> launch_microseconds;
    /// NVRTC's time for the main kernel, nothing cached.
    double cold_compile_milliseconds = 0;
};

/// A problem small enough that the GPU keeps up with the host.
AttentionProblem host_time_problem(const TileConfig& config, DataType dtype);

HostTime measure_host_time(Gpu& gpu, SupportKernels& support, const NamedConfig& kernel,
                           DataType dtype, int calls = 2000);

}  // namespace backlight::tool
