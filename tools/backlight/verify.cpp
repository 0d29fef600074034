#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "arguments.hpp"
#include "attention/family_support.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "bench_report.hpp"
#include "emulated_twin.hpp"
#include "emulation/emulated_device.hpp"
#include "emulation/host_compiler.hpp"
#include "json_file.hpp"
#include "runtime_implementation.hpp"
#include "tuning/search_space.hpp"
#include "verification/parallel.hpp"
#include "verify_problems.hpp"
#include "verify_table.hpp"
#include "version.hpp"

namespace backlight::tool {

namespace {

using nlohmann::json;

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
    json document(tool::to_json(problem));
    document.update({{"kernel", report.kernel},
                     {"inputs", verification::to_string(report.problem.inputs)},
                     {"layout", to_string(report.problem.layout)},
                     {"reference", to_string(report.problem.reference)},
                     {"repeats", report.problem.repeats},
                     {"tensors", tensors},
                     {"failures", report.failures},
                     {"passed", report.passed()}});
    return document;
}

json to_json(const std::vector<GradientDifference>& differences) {
    json document = json::array();
    for (const GradientDifference& difference : differences) {
        document.push_back({{"tensor", difference.tensor},
                            {"relative_l2", number(difference.relative_l2)},
                            {"relative_l2_allowed", difference.allowed},
                            {"equal_bits", difference.equal_share}});
    }
    return document;
}

/// The kernel as the problem gets it. Nothing where it refuses the problem, as kernels do with
/// lengths that their tiles do not divide and cards that they were not written for; and nothing for
/// "default" where another of the kernels is the same.
std::optional<NamedConfig> kernel_for(const Session& session,
                                      const std::vector<NamedConfig>& kernels, std::size_t index,
                                      const AttentionProblem& problem) {
    const device::Target& target = session.device().properties().target;
    const NamedConfig& kernel = kernels[index];
    const TileConfig config = config_for(kernel, problem, target);
    const auto is_named = [&](const NamedConfig& other) {
        return !other.is_default() && other.config == config;
    };
    if (!tuning::is_legal(config, problem, target) ||
        (kernel.is_default() && std::ranges::any_of(kernels, is_named))) {
        return std::nullopt;
    }
    return NamedConfig{.name = table_name(kernel.name, config), .config = config};
}

/// Runs groups and keeps what they gave.
class Verification {
  public:
    /// `twin`: what to compare with, or null.
    Verification(SupportKernels& support, std::vector<NamedConfig> kernels, EmulatedTwin* twin)
        : support_(support), kernels_(std::move(kernels)), twin_(twin) {}

    void run(const ProblemGroup& group, const ProblemAxes& axes) {
        std::vector<KernelSummary> summaries(kernels_.size());
        for (const CheckedProblem& problem : group.problems) {
            // The reference is computed once for all kernels.
            ProblemCheck check(support_, problem);
            if (twin_ != nullptr) {
                twin_->set_problem(problem);
            }
            for (std::size_t i = 0; i < kernels_.size(); ++i) {
                const auto kernel = kernel_for(support_.session(), kernels_, i, problem.problem);
                if (!kernel) {
                    continue;
                }
                ProblemReport report = run_one(check, problem, *kernel);
                std::vector<GradientDifference> differences;
                if (twin_ != nullptr) {
                    differences = twin_->compare(report, *kernel, check.data().gradients());
                }
                summaries[i].add(report);
                reports_.push_back(to_json(report));
                if (twin_ != nullptr) {
                    reports_.back()["against_emulated"] = to_json(differences);
                }
                if (!report.passed()) {
                    keep_failures(report);
                }
            }
        }
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            const KernelSummary& summary = summaries[i];
            if (summary.problems() == 0) {
                continue;
            }
            fmt::print("{}", summary.line(group.name, kernels_[i].name, axes));
            problems_ += summary.problems();
            failed_ += summary.failed();
        }
        std::fflush(stdout);
    }

    int problems() const noexcept { return problems_; }
    int failed() const noexcept { return failed_; }
    const std::vector<std::string>& failures() const noexcept { return failures_; }
    const json& reports() const noexcept { return reports_; }

  private:
    ProblemReport run_one(ProblemCheck& check, const CheckedProblem& problem,
                          const NamedConfig& kernel) {
        const auto plan = support_.session().runtime().backward(problem.problem, kernel.config);
        try {
            return check.check(kernel.name, *plan);
        } catch (const Error& error) {
            // Only the emulated device tells what a kernel did wrong, and goes on to the next.
            if (error.code() != ErrorCode::kernel_fault) {
                throw;
            }
            return {.problem = problem,
                    .kernel = kernel.name,
                    .tensors = {},
                    .failures = {error.what()}};
        }
    }

    void keep_failures(const ProblemReport& report) {
        for (const std::string& failure : report.failures) {
            failures_.push_back(
                fmt::format("{} {}: {}", report.kernel, to_string(report.problem), failure));
        }
    }

    SupportKernels& support_;
    std::vector<NamedConfig> kernels_;
    EmulatedTwin* twin_;
    json reports_ = json::array();
    std::vector<std::string> failures_;
    int problems_ = 0;
    int failed_ = 0;
};

std::vector<ProblemAxes> all_axes(const VerifyOptions& options) {
    const bool emulated = options.device.emulation.has_value();
    const bool least = emulated && options.quick;
    const std::vector<std::int64_t> head_dims =
        options.head_dims.empty() ? std::vector<std::int64_t>{64, 128} : options.head_dims;
    std::vector<DataType> dtypes = options.dtypes;
    if (dtypes.empty()) {
        dtypes = least ? std::vector{DataType::bf16} : std::vector{DataType::bf16, DataType::fp16};
    }
    std::vector<ProblemAxes> axes;
    for (const std::int64_t head_dim : head_dims) {
        for (const DataType dtype : dtypes) {
            for (const bool causal : {true, false}) {
                axes.push_back({.head_dim = head_dim,
                                .causal = causal,
                                .dtype = dtype,
                                .repeats = options.repeats.value_or(least ? 2 : 3),
                                .quick = options.quick,
                                .emulated = emulated || options.against_emulated,
                                .features = options.features});
            }
        }
    }
    return axes;
}

/// The host's compiler takes seconds for a kernel, and one core: all are compiled first, on every
/// core.
void compile_all(Session& session, const std::vector<ProblemAxes>& axes,
                 const std::vector<NamedConfig>& kernels) {
    verification::parallel_for(
        static_cast<std::int64_t>(axes.size() * kernels.size()), [&](std::int64_t index) {
            const auto i = static_cast<std::size_t>(index);
            const ProblemGroup group = problem_groups(axes[i / kernels.size()]).front();
            const std::size_t kernel = i % kernels.size();
            for (const CheckedProblem& problem : group.problems) {
                if (const auto taken = kernel_for(session, kernels, kernel, problem.problem)) {
                    session.runtime().backward(problem.problem, taken->config);
                    // Of "default" the next problem may get another.
                    if (!kernels[kernel].is_default()) {
                        break;
                    }
                }
            }
        });
}

/// What was asked for must not be left out in silence: throws what the first kernel says to the
/// first problem that has a feature which no kernel takes, or to the first if none takes any.
void require_taken(const Session& session, const std::vector<ProblemAxes>& axes,
                   const std::vector<NamedConfig>& kernels) {
    const device::Target& target = session.device().properties().target;
    const auto refuse = [&](const AttentionProblem& problem) {
        attention::validate(problem);
        attention::validate(config_for(kernels.front(), problem, target), problem, target);
    };
    std::vector<CheckedProblem> problems;
    for (const ProblemAxes& each : axes) {
        for (ProblemGroup& group : problem_groups(each)) {
            std::ranges::move(group.problems, std::back_inserter(problems));
        }
    }
    for (const CheckedProblem& problem : problems) {
        if (std::ranges::all_of(kernels, [&](const NamedConfig& kernel) {
                const TileConfig config = config_for(kernel, problem.problem, target);
                return attention::unsupported_feature(problem.problem, config.family).has_value();
            })) {
            refuse(problem.problem);
        }
    }
    const auto is_taken = [&](const CheckedProblem& problem) {
        return std::ranges::any_of(kernels, [&](const NamedConfig& kernel) {
            return tuning::is_legal(config_for(kernel, problem.problem, target), problem.problem,
                                    target);
        });
    };
    if (std::ranges::none_of(problems, is_taken)) {
        refuse(problems.at(0).problem);
    }
}

void print_heading(Runtime& runtime, const DeviceChoice& device) {
    fmt::print("{} ({})\n", runtime.device_name(), runtime.target());
    if (device.emulation) {
        fmt::print(
            "Kernels are executed on the CPU, under schedules of seed {} with blocks in {} order; "
            "only small\nproblems, each compared with fp64 on the host. The large ones need a "
            "GPU.\n",
            device.emulation->seed, to_string(device.emulation->grid_order));
    }
    fmt::print(
        "Relative L2 of each gradient and the worst row of all, the largest of each group.\n\n{}",
        table_heading());
    std::fflush(stdout);
}

void print_failures(const VerifyOptions& options, const std::vector<std::string>& failures) {
    constexpr std::size_t most_failures = 40;
    for (std::size_t i = 0; i < std::min(failures.size(), most_failures); ++i) {
        fmt::print("\nFAILED {}", failures[i]);
    }
    if (failures.size() > most_failures) {
        fmt::print("\n… and {} more", failures.size() - most_failures);
    }
    if (!failures.empty() && options.device.emulation) {
        fmt::print("\n\nThe same schedules again: {}", replay_command(options));
    }
}

/// The emulated device's counts, where it was asked to make them.
void print_bank_conflicts(const Session& session) {
    const auto* const device = dynamic_cast<const emulation::EmulatedDevice*>(&session.device());
    const auto counts =
        device != nullptr ? device->bank_conflicts() : std::vector<emulation::BankConflictCount>{};
    if (counts.empty()) {
        return;
    }
    fmt::print(
        "\nShared memory, by place: executions by a warp, wavefronts, the fewest possible\n");
    for (const emulation::BankConflictCount& count : counts) {
        fmt::print("{:<60} {:>12} {:>12} {:>12}\n", count.site, count.executions, count.wavefronts,
                   count.least_wavefronts);
    }
}

/// What ran the kernels, for the JSON.
json environment(Runtime& runtime, const DeviceChoice& device) {
    json document = {{"device", device.emulation ? "emulated" : runtime.device_name()},
                     {"target", runtime.target()},
                     {"backlight", {{"version", version()}, {"git_revision", git_revision()}}}};
    if (device.emulation) {
        document["host_compiler"] = emulation::HostCompiler().version();
        document["seed"] = device.emulation->seed;
        document["grid_order"] = to_string(device.emulation->grid_order);
    } else {
        document["nvrtc"] = runtime.implementation().store().nvrtc().version();
    }
    return document;
}

}  // namespace

std::string replay_command(const VerifyOptions& options) {
    std::string command = "backlight verify --device ";
    if (options.device.emulation) {
        command += fmt::format("emulated --seed {} --grid-order {}", options.device.emulation->seed,
                               to_string(options.device.emulation->grid_order));
    } else {
        command += std::to_string(options.device.ordinal);
    }
    command += options.quick ? " --quick" : "";
    for (const std::string& kernel : options.kernels) {
        command += " --kernel " + kernel;
    }
    for (const std::string& tile : options.tiles) {
        command += " --tile " + tile;
    }
    for (const std::int64_t head_dim : options.head_dims) {
        command += fmt::format(" --head-dim {}", head_dim);
    }
    for (const DataType dtype : options.dtypes) {
        command += fmt::format(" --dtype {}", to_string(dtype));
    }
    if (options.repeats) {
        command += fmt::format(" --repeats {}", *options.repeats);
    }
    return command + options.features.command_line();
}

int verify(const VerifyOptions& options) {
    check_json_path(options.json);
    const std::vector<NamedConfig> kernels = named_configs(options.kernels, options.tiles);
    const std::vector<ProblemAxes> axes = all_axes(options);
    const std::unique_ptr<Session> session = open_session(options.device);
    Runtime& runtime = session->runtime();
    SupportKernels support(*session);
    std::unique_ptr<EmulatedTwin> twin;
    if (options.against_emulated) {
        twin = std::make_unique<EmulatedTwin>();
    }
    Verification verification(support, kernels, twin.get());
    const auto start = std::chrono::steady_clock::now();

    require_taken(*session, axes, kernels);
    if (options.device.emulation || twin != nullptr) {
        compile_all(twin != nullptr ? twin->session() : *session, axes, kernels);
    }
    print_heading(runtime, options.device);
    for (const ProblemAxes& each : axes) {
        for (const ProblemGroup& group : problem_groups(each)) {
            verification.run(group, each);
        }
    }

    print_failures(options, verification.failures());
    if (twin != nullptr) {
        fmt::print("\ndK and dV of the GPU and the emulated device: relative L2 up to {:.1e}\n",
                   twin->largest());
    }
    print_bank_conflicts(*session);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("\n{} problems, {} failed ({:.1f} s)\n", verification.problems(),
               verification.failed(), seconds.count());
    if (!options.json.empty()) {
        json document = environment(runtime, options.device);
        document["problems"] = verification.problems();
        document["failed"] = verification.failed();
        document["seconds"] = seconds.count();
        document["reports"] = verification.reports();
        write_json(options.json, document, std::cout);
    }
    return verification.failed() == 0 ? 0 : 1;
}

}  // namespace backlight::tool
