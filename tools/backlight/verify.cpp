#include "verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "arguments.hpp"
#include "attention/family_support.hpp"
#include "attention/validation.hpp"
#include "emulated_twin.hpp"
#include "json_file.hpp"
#include "tuning/search_space.hpp"
#include "verification/parallel.hpp"
#include "verify_grid.hpp"
#include "verify_problems.hpp"
#include "verify_report.hpp"
#include "verify_table.hpp"

namespace backlight::tool {

namespace {

using nlohmann::json;

json to_json(const std::vector<GradientDifference>& differences) {
    json document = json::array();
    for (const GradientDifference& difference : differences) {
        document.push_back({{"tensor", difference.tensor},
                            {"relative_l2", finite_or_null(difference.relative_l2)},
                            {"relative_l2_allowed", difference.allowed},
                            {"equal_bits", difference.equal_share}});
    }
    return document;
}

/// Runs groups and keeps what they gave.
class Verification {
  public:
    /// `twin`: what to compare with, or null.
    Verification(SupportKernels& support, std::vector<NamedConfig> kernels, EmulatedTwin* twin,
                 VerificationTally& tally)
        : support_(support), kernels_(std::move(kernels)), twin_(twin), tally_(tally) {}

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
                ProblemReport report = checked_report(support_.session(), check, problem, *kernel);
                std::vector<GradientDifference> differences;
                if (twin_ != nullptr) {
                    differences = twin_->compare(report, *kernel, check.data().gradients());
                }
                summaries[i].add(report);
                json& document = tally_.add(report);
                if (twin_ != nullptr) {
                    document["against_emulated"] = to_json(differences);
                }
            }
        }
        for (std::size_t i = 0; i < kernels_.size(); ++i) {
            tally_.add_line(summaries[i], summaries[i].line(group.name, kernels_[i].name, axes));
        }
    }

  private:
    SupportKernels& support_;
    std::vector<NamedConfig> kernels_;
    EmulatedTwin* twin_;
    VerificationTally& tally_;
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

}  // namespace

int verify(const VerifyOptions& options) {
    if (options.grid) {
        return verify_grid(options);
    }
    check_json_path(options.json);
    const std::vector<NamedConfig> kernels = named_configs(options.kernels, options.tiles);
    const std::vector<ProblemAxes> axes = all_axes(options);
    const std::unique_ptr<Session> session = open_session(options.device);
    SupportKernels support(*session);
    std::unique_ptr<EmulatedTwin> twin;
    if (options.against_emulated) {
        twin = std::make_unique<EmulatedTwin>();
    }
    VerificationTally tally;
    Verification verification(support, kernels, twin.get(), tally);

    require_taken(*session, axes, kernels);
    if (options.device.emulation || twin != nullptr) {
        compile_all(twin != nullptr ? twin->session() : *session, axes, kernels);
    }
    print_heading(session->runtime(), options.device);
    for (const ProblemAxes& each : axes) {
        for (const ProblemGroup& group : problem_groups(each)) {
            verification.run(group, each);
        }
    }

    tally.finish(
        options, *session, json::object(),
        twin == nullptr
            ? ""
            : fmt::format(
                  "\ndK and dV of the GPU and the emulated device: relative L2 up to {:.1e}\n",
                  twin->largest()));
    return tally.failed() == 0 ? 0 : 1;
}

}  // namespace backlight::tool
