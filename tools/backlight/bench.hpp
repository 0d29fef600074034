#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "problem_data.hpp"
#include "problem_features.hpp"

namespace backlight::tool {

struct BenchOptions {
    /// CUDA device ordinal.
    int device = 0;
    /// "B_H_N_d"; empty: 8_16_4096_128.
    std::vector<std::string> shapes;
    /// Names for `parse_kernel` and tiles; every preset, and what plans choose, where both are
    /// empty.
    std::vector<std::string> kernels;
    std::vector<std::string> tiles;
    bool causal = true;
    bool full = false;
    DataType dtype = DataType::bf16;
    ProblemFeatures features;
    Layout layout = Layout::bhsd;
    /// Lengths of packed sequences: of one problem for each mask, with the heads and head dimension
    /// of the shape. Empty: as the shapes say.
    std::vector<std::int64_t> lengths;
    /// Sequence lengths as constants of the kernels.
    bool bake_seqlen = false;
    bool programmatic_dependent_launch = true;
    int repeats = 30;
    /// Rest before each repetition ("cool"), or none ("hot").
    bool cool = true;
    /// Leave the matrix product out.
    bool matmul = true;
    /// In place of the datasheet's.
    std::optional<double> peak_tflops;
    std::optional<double> peak_bandwidth;
    /// A target, such as "sm_120", to whose rate the tensor cores are slowed; empty: they are not.
    std::string emulate_tensor_rate;
    /// Measure what a call costs the host instead.
    bool host_time = false;
    /// A name for `parse_kernel`, or one that `tiles` has: run it once between cuProfilerStart and
    /// cuProfilerStop, for a profiler that waits for these, and measure nothing.
    std::string profile;
    /// File, "-" for `out` (and no tables then), or empty.
    std::string json;
    /// Picture over sequence lengths, .svg or .png, or empty.
    std::string plot;
    /// Documents that were written before: draw these and measure nothing.
    std::vector<std::string> plot_from;
};

/// Fewer repetitions do not make a figure that may be reported.
inline constexpr int least_reported_repeats = 20;

/// Times the whole backward and writes tables. Throws Error; nothing is launched where an argument
/// is refused.
void bench(const BenchOptions& options, std::ostream& out);

}  // namespace backlight::tool
