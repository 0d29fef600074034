#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/runtime.hpp"
#include "backlight/tile_config.hpp"
#include "datasheet.hpp"
#include "emulated_tensor_rate.hpp"
#include "environment.hpp"
#include "host_time.hpp"
#include "timing.hpp"

namespace backlight::tool {

// What was measured, and what follows from it: pure functions, no GPU.

/// A main kernel timed apart from the chain that it is in, with its products repeated.
struct MainKernelResult {
    /// Of the products that count.
    double executed_flops = 0;
    std::vector<Sample> samples = {};
};

struct VariantResult {
    std::string name;
    TileConfig config;
    std::vector<KernelResources> resources;
    std::size_t workspace_bytes = 0;
    std::vector<Sample> samples = {};
    /// Where the tensor rate is emulated.
    std::optional<MainKernelResult> main_kernel = std::nullopt;
};

/// The matrix product of the same run.
struct MatmulResult {
    std::string library;
    std::int64_t size = 0;
    DataType dtype = DataType::bf16;
    double flops = 0;
    std::vector<Sample> samples;
};

/// The loop of products of the same run, repeated as those of the kernels: the peak at that rate.
struct TensorRateResult {
    double flops = 0;
    std::vector<Sample> samples;
};

/// A tensor rate that was emulated, and the clocks that the loop of products took for each one that
/// counts, without repeats and with them.
struct SlowedRate {
    EmulatedTensorRate rate;
    double measured_device_clocks = 0;
    double measured_slowed_clocks = 0;
};

/// One problem: everything in it was interleaved.
struct ProblemResult {
    AttentionProblem problem;
    std::string layout;
    std::vector<VariantResult> variants;
    std::optional<MatmulResult> matmul;
    /// Where the tensor rate is emulated.
    std::optional<TensorRateResult> tensor_rate = std::nullopt;
    /// Lengths of packed sequences, where they are known.
    std::vector<SequenceShape> sequences = {};

    /// Of the backward.
    double flops() const noexcept;
    /// Of one head of one batch entry, or of all packed sequences whose lengths are known.
    double attended_pairs() const noexcept;
};

struct BenchReport {
    Environment environment;
    TimingOptions timing;
    std::string regime;
    Peaks peaks;
    /// Why no matmul rate was measured, where none was.
    std::string matmul_note;
    std::string nvml_note;
    std::vector<ProblemResult> problems;
    std::vector<HostTime> host_times;
    /// Where the tensor rate is emulated.
    std::optional<SlowedRate> slowed_rate = std::nullopt;
};

/// Of at least one value; the mean of the middle two where their number is even.
double median(std::vector<double> values);
/// Of at least one value: the one that the given fraction of the others is not above.
double percentile(std::vector<double> values, double fraction);
double median_milliseconds(const std::vector<Sample>& samples);
double least_milliseconds(const std::vector<Sample>& samples);

/// 10¹² operations a second.
double tflops(double flops, double milliseconds) noexcept;

/// The rate of the problem's loop of products, and the share of it that a main kernel keeps busy.
double slowed_peak_tflops(const TensorRateResult& result);
double tensor_busy(const MainKernelResult& main, const TensorRateResult& tensor_rate);

/// The least time that a problem takes on a card of these peaks (the roofline model): that of its
/// products at the peak rate, and that of its tensors, each moved once, at the peak bandwidth.
struct LowerBounds {
    std::optional<double> compute_milliseconds;
    std::optional<double> memory_milliseconds;
};
LowerBounds lower_bounds(const ProblemResult& result, const Peaks& peaks) noexcept;

/// "B=8 H=16 N=4096 d=128 bf16 causal bhsd".
std::string problem_title(const ProblemResult& result);

/// The tables of one problem: kernels, then lower bounds.
std::string format_problem(const ProblemResult& result, const Peaks& peaks);
/// The table of one problem at an emulated tensor rate: the peak is that of its loop of products.
std::string format_slowed_problem(const ProblemResult& result);
/// One line: what is emulated, by what, and what was measured of it.
std::string format_slowed_rate(const SlowedRate& slowed);
std::string format_host_times(const std::vector<HostTime>& host_times);

nlohmann::ordered_json to_json(const KernelResources& resources);
nlohmann::ordered_json to_json(const TileConfig& config);
nlohmann::ordered_json to_json(const AttentionProblem& problem);

/// What rates are formed from, for documents.
inline constexpr const char* flops_formula =
    "10·B·H·Nq·Nk·d, half when causal; with other masks or head dimensions (6·d + 4·d_v)·B·H·pairs "
    "of a query and a key that it attends to";
nlohmann::ordered_json to_json(const BenchReport& report);

}  // namespace backlight::tool
