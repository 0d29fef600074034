#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "backlight/error.hpp"
#include "backlight/tile_config.hpp"
#include "json_file.hpp"
#include "problem_check.hpp"
#include "runtime_implementation.hpp"
#include "version.hpp"

namespace backlight::tool {

namespace {

using nlohmann::json;
using verification::InputKind;

constexpr const char* row_format =
    "{:<24} {:<6} {:>4} {:<6} {:<5} {:>8} {:>9.2e} {:>9.2e} {:>9.2e} {:>9.2e} {:>6}\n";
constexpr const char* heading_format =
    "{:<24} {:<6} {:>4} {:<6} {:<5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>6}\n";

/// Problems of one kind: a line of the table for each kernel.
struct Group {
    std::string name;
    std::vector<CheckedProblem> problems;
};

/// The axes that every group is made along.
struct Axes {
    std::int64_t head_dim;
    bool causal;
    DataType dtype;
    int repeats;
    bool quick;
};

CheckedProblem checked(const Axes& axes, std::int64_t batch, std::int64_t heads,
                       std::int64_t seqlen) {
    return {.problem = {.batch = batch,
                        .heads = heads,
                        .seqlen_q = seqlen,
                        .seqlen_kv = seqlen,
                        .head_dim = axes.head_dim,
                        .causal = axes.causal,
                        .dtype = axes.dtype,
                        .softmax_scale = std::nullopt},
            .repeats = axes.repeats};
}

/// From one tile of the largest preset to five, alone and in a batch of heads.
Group small_group(const Axes& axes, InputKind kind) {
    Group group{.name = fmt::format("small {}", verification::to_string(kind)), .problems = {}};
    const std::vector<std::int64_t> lengths =
        axes.quick ? std::vector<std::int64_t>{64, 192}
                   : std::vector<std::int64_t>{64, 128, 192, 256, 320};
    for (const std::int64_t seqlen : lengths) {
        for (const auto& [batch, heads] : {std::pair{1, 1}, std::pair{2, 3}}) {
            CheckedProblem problem = checked(axes, batch, heads, seqlen);
            problem.inputs = kind;
            problem.seed = static_cast<std::uint64_t>(seqlen + batch);
            group.problems.push_back(problem);
        }
    }
    return group;
}

/// Extents that are all equal, or all different, find every pair that a kernel confuses.
Group extents_group(const Axes& axes) {
    Group group{.name = "extents", .problems = {}};
    if (axes.head_dim == 64) {
        CheckedProblem equal = checked(axes, 64, 64, 64);
        equal.reference = Reference::gpu_fp32;  // 4096 heads: too many for the host
        group.problems.push_back(equal);
    }
    CheckedProblem different = checked(axes, 2, 3, 192);
    if (!axes.causal) {
        different.problem.seqlen_kv = 320;
    }
    group.problems.push_back(different);
    return group;
}

Group strides_group(const Axes& axes) {
    Group group{.name = "strides", .problems = {}};
    for (const Layout layout : {Layout::bshd, Layout::packed_qkv}) {
        for (const auto& [batch, heads] : {std::pair{1, 1}, std::pair{2, 3}}) {
            CheckedProblem problem = checked(axes, batch, heads, 192);
            problem.layout = layout;
            group.problems.push_back(problem);
        }
    }
    return group;
}

Group scale_group(const Axes& axes) {
    Group group{.name = "softmax_scale", .problems = {}};
    for (const float scale : {0.03F, -0.1F, 0.0F}) {
        CheckedProblem problem = checked(axes, 1, 2, 192);
        problem.problem.softmax_scale = scale;
        group.problems.push_back(problem);
    }
    return group;
}

Group large_group(const Axes& axes) {
    Group group{.name = "large", .problems = {}};
    CheckedProblem problem = checked(axes, 2, 4, 512);
    problem.reference = Reference::gpu_fp32;
    group.problems.push_back(problem);
    if (!axes.quick) {
        problem = checked(axes, 1, 2, 4096);
        problem.reference = Reference::gpu_fp32;
        group.problems.push_back(problem);
    }
    return group;
}

std::vector<Group> groups(const Axes& axes) {
    std::vector<Group> all;
    for (const InputKind kind : verification::input_kinds) {
        if (!axes.quick || kind == InputKind::normal || kind == InputKind::low_lse) {
            all.push_back(small_group(axes, kind));
        }
    }
    all.push_back(extents_group(axes));
    all.push_back(strides_group(axes));
    all.push_back(scale_group(axes));
    all.push_back(large_group(axes));
    return all;
}

/// JSON has no infinity: a tensor that is not finite has null for its errors.
json number(double value) {
    return std::isfinite(value) ? json(value) : json(nullptr);
}

json to_json(const ProblemReport& report) {
    const AttentionProblem& problem = report.problem.problem;
    json tensors = json::array();
    for (const TensorReport& tensor : report.tensors) {
        tensors.push_back({{"tensor", tensor.tensor},
                           {"relative_l2", number(tensor.accuracy.relative_l2)},
                           {"relative_l2_allowed", tensor.tolerance.relative_l2},
                           {"worst_row", number(tensor.accuracy.worst_row)},
                           {"worst_row_allowed", tensor.tolerance.worst_row},
                           {"between_runs", number(tensor.between_runs)}});
    }
    return {{"kernel", report.kernel},
            {"batch", problem.batch},
            {"heads", problem.heads},
            {"seqlen_q", problem.seqlen_q},
            {"seqlen_kv", problem.seqlen_kv},
            {"head_dim", problem.head_dim},
            {"causal", problem.causal},
            {"dtype", to_string(problem.dtype)},
            {"softmax_scale", problem.effective_softmax_scale()},
            {"inputs", verification::to_string(report.problem.inputs)},
            {"layout", to_string(report.problem.layout)},
            {"reference", to_string(report.problem.reference)},
            {"repeats", report.problem.repeats},
            {"tensors", tensors},
            {"failures", report.failures},
            {"passed", report.passed()}};
}

/// What a line of the table tells: the worst of a kernel's problems in a group.
struct Summary {
    std::array<double, 3> relative_l2{};
    double worst_row = 0;
    int problems = 0;
    int failed = 0;

    void add(const ProblemReport& report) {
        ++problems;
        failed += report.passed() ? 0 : 1;
        for (std::size_t i = 0; i < report.tensors.size(); ++i) {
            const verification::Accuracy& accuracy = report.tensors[i].accuracy;
            relative_l2[i] = std::max(relative_l2[i], accuracy.relative_l2);
            worst_row = std::max(worst_row, accuracy.worst_row);
        }
    }
};

struct NamedConfig {
    std::string name;
    TileConfig config;
};

std::vector<NamedConfig> chosen_kernels(const std::vector<std::string>& names) {
    std::vector<NamedConfig> chosen;
    if (names.empty()) {
        for (const KernelPreset& preset : kernel_presets()) {
            chosen.push_back({std::string(preset.name), preset.config});
        }
    }
    for (const std::string& name : names) {
        chosen.push_back({name, kernel_preset(name)});
    }
    return chosen;
}

/// Runs groups and keeps what they gave.
class Verification {
  public:
    Verification(SupportKernels& support, std::vector<NamedConfig> kernels)
        : support_(support), kernels_(std::move(kernels)) {}

    void run(const Group& group, const Axes& axes) {
        std::vector<Summary> summaries(kernels_.size());
        for (const CheckedProblem& problem : group.problems) {
            // The reference is computed once for all kernels.
            ProblemCheck check(support_, problem);
            for (std::size_t i = 0; i < kernels_.size(); ++i) {
                const ProblemReport report = check.check(kernels_[i].name, kernels_[i].config);
                summaries[i].add(report);
                reports_.push_back(to_json(report));
                if (!report.passed()) {
                    keep_failures(report);
                }
            }
        }
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            const Summary& summary = summaries[i];
            fmt::print(row_format, group.name, kernels_[i].name, axes.head_dim,
                       axes.causal ? "causal" : "full", to_string(axes.dtype), summary.problems,
                       summary.relative_l2[0], summary.relative_l2[1], summary.relative_l2[2],
                       summary.worst_row,
                       summary.failed == 0 ? "ok" : fmt::format("{} bad", summary.failed));
            problems_ += summary.problems;
            failed_ += summary.failed;
        }
        std::fflush(stdout);
    }

    int problems() const noexcept { return problems_; }
    int failed() const noexcept { return failed_; }
    const std::vector<std::string>& failures() const noexcept { return failures_; }
    const json& reports() const noexcept { return reports_; }

  private:
    void keep_failures(const ProblemReport& report) {
        for (const std::string& failure : report.failures) {
            failures_.push_back(
                fmt::format("{} {}: {}", report.kernel, to_string(report.problem), failure));
        }
    }

    SupportKernels& support_;
    std::vector<NamedConfig> kernels_;
    json reports_ = json::array();
    std::vector<std::string> failures_;
    int problems_ = 0;
    int failed_ = 0;
};

}  // namespace

int verify(const VerifyOptions& options) {
    check_json_path(options.json);
    const std::vector<NamedConfig> kernels = chosen_kernels(options.kernels);
    RuntimeOptions runtime_options;
    runtime_options.device = options.device;
    Gpu gpu(runtime_options);
    SupportKernels support(gpu);
    Verification verification(support, kernels);
    const auto start = std::chrono::steady_clock::now();

    fmt::print(
        "{} ({})\nRelative L2 of each gradient and the worst row of all, the largest of each "
        "group.\n\n",
        gpu.runtime().device_name(), gpu.runtime().target());
    fmt::print(heading_format, "group", "kernel", "d", "mask", "dtype", "problems", "dQ", "dK",
               "dV", "row", "");
    for (const std::int64_t head_dim : options.head_dims) {
        for (const DataType dtype : options.dtypes) {
            for (const bool causal : {true, false}) {
                const Axes axes{.head_dim = head_dim,
                                .causal = causal,
                                .dtype = dtype,
                                .repeats = options.repeats,
                                .quick = options.quick};
                for (const Group& group : groups(axes)) {
                    verification.run(group, axes);
                }
            }
        }
    }

    constexpr std::size_t most_failures = 40;
    const std::vector<std::string>& failures = verification.failures();
    for (std::size_t i = 0; i < std::min(failures.size(), most_failures); ++i) {
        fmt::print("\nFAILED {}", failures[i]);
    }
    if (failures.size() > most_failures) {
        fmt::print("\n… and {} more", failures.size() - most_failures);
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("\n{} problems, {} failed ({:.1f} s)\n", verification.problems(),
               verification.failed(), seconds.count());
    if (!options.json.empty()) {
        write_json(options.json,
                   {{"device", gpu.runtime().device_name()},
                    {"target", gpu.runtime().target()},
                    {"nvrtc", gpu.runtime().implementation().store().nvrtc().version()},
                    {"backlight", {{"version", version()}, {"git_revision", git_revision()}}},
                    {"problems", verification.problems()},
                    {"failed", verification.failed()},
                    {"seconds", seconds.count()},
                    {"reports", verification.reports()}},
                   std::cout);
    }
    return verification.failed() == 0 ? 0 : 1;
}

}  // namespace backlight::tool
