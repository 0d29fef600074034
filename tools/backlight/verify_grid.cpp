#include "verify_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "grid_share.hpp"
#include "json_file.hpp"
#include "logging.hpp"
#include "verification/parallel.hpp"
#include "verify_report.hpp"
#include "verify_table.hpp"

namespace backlight::tool {

namespace {

using nlohmann::json;

/// Problems of equal head dimensions, which are a line of the table.
struct HeadDimsGroup {
    std::string head_dims;
    std::vector<CheckedProblem> problems;
};

std::vector<HeadDimsGroup> by_head_dims(const std::vector<CheckedProblem>& problems) {
    std::vector<HeadDimsGroup> groups;
    for (const CheckedProblem& checked : problems) {
        const AttentionProblem& problem = checked.problem;
        const std::string name = problem.head_dim_v
                                     ? fmt::format("{}/{}", problem.head_dim, *problem.head_dim_v)
                                     : std::to_string(problem.head_dim);
        auto group = std::ranges::find(groups, name, &HeadDimsGroup::head_dims);
        if (group == groups.end()) {
            group = groups.insert(groups.end(), {.head_dims = name, .problems = {}});
        }
        group->problems.push_back(checked);
    }
    return groups;
}

class GridRun {
  public:
    GridRun(const VerifyOptions& options, Session& session, VerificationTally& tally)
        : options_(options), session_(session), support_(session), tally_(tally) {}

    void run(const NamedConfig& kernel, const GridShare& share) {
        compile(kernel, share.problems);
        for (const HeadDimsGroup& group : by_head_dims(share.problems)) {
            KernelSummary summary;
            for (CheckedProblem problem : group.problems) {
                problem.repeats = options_.repeats.value_or(problem.repeats);
                const ProblemReport report =
                    report_of(problem, taken_kernel(kernel, problem.problem));
                summary.add(report);
                tally_.add(report);
            }
            tally_.add_line(summary, summary.line("grid", kernel.name, group.head_dims));
        }
    }

  private:
    NamedConfig taken_kernel(const NamedConfig& kernel, const AttentionProblem& problem) const {
        return named_for(kernel, problem, session_.device().properties().target);
    }

    /// What one problem throws must not hide what hundreds of others show.
    ProblemReport report_of(const CheckedProblem& problem, const NamedConfig& kernel) {
        try {
            ProblemCheck check(support_, problem);
            return checked_report(session_, check, problem, kernel);
        } catch (const std::exception& error) {
            return {.problem = problem,
                    .kernel = kernel.name,
                    .tensors = {},
                    .failures = {error.what()}};
        }
    }

    /// Nearly each problem has kernels of its own, which take a core a second or more. What fails
    /// here fails again, and is reported, with its problem.
    void compile(const NamedConfig& kernel, const std::vector<CheckedProblem>& problems) {
        verification::parallel_for(
            static_cast<std::int64_t>(problems.size()), [&](std::int64_t index) {
                const AttentionProblem& problem = problems[static_cast<std::size_t>(index)].problem;
                try {
                    session_.runtime().backward(problem, taken_kernel(kernel, problem).config);
                } catch (const std::exception& error) {
                    logger().debug("{}: {}", to_string(problem), error.what());
                }
            });
    }

    const VerifyOptions& options_;
    Session& session_;
    SupportKernels support_;
    VerificationTally& tally_;
};

json to_json(const std::string& kernel, const GridShare& share) {
    json lacking = json::object();
    for (const auto& [feature, problems] : share.lacking) {
        lacking[feature] = problems;
    }
    return {{"kernel", kernel},
            {"problems", share.problems.size()},
            {"whole_grid", share.whole},
            {"not_taken", share.not_taken},
            {"not_taken_for", lacking}};
}

}  // namespace

int verify_grid(const VerifyOptions& options) {
    check_json_path(options.json);
    const std::vector<NamedConfig> kernels = named_configs(options.kernels, options.tiles);
    const VerificationGrid grid(*options.grid, options.head_dims, options.dtypes);
    const std::unique_ptr<Session> session = open_session(options.device);
    const device::Target& target = session->device().properties().target;
    VerificationTally tally;

    std::vector<GridShare> shares;
    for (const NamedConfig& kernel : kernels) {
        shares.push_back(grid_share(grid, kernel, target));
    }

    print_heading(session->runtime(), options.device);
    GridRun run(options, *session, tally);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        run.run(kernels[i], shares[i]);
    }
    fmt::print("\n");
    json not_taken = json::array();
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        fmt::print("{}", share_text(kernels[i].name, shares[i]));
        not_taken.push_back(to_json(kernels[i].name, shares[i]));
    }

    tally.finish(options, *session,
                 {{"grid", to_string(*options.grid)}, {"kernels", std::move(not_taken)}});
    // A kernel that was asked for and takes nothing has not been verified.
    return tally.failed() == 0 && tally.problems() > 0 ? 0 : 1;
}

}  // namespace backlight::tool
