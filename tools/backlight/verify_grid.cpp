#include "verify_grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <vector>

#include "grid_share.hpp"
#include "json_file.hpp"
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
    GridRun(const VerifyOptions& options, Session& session)
        : options_(options), session_(session), support_(session) {}

    void run(const NamedConfig& kernel, const GridShare& share) {
        compile(kernel, share.problems);
        for (const HeadDimsGroup& group : by_head_dims(share.problems)) {
            KernelSummary summary;
            for (CheckedProblem problem : group.problems) {
                problem.repeats = options_.repeats.value_or(problem.repeats);
                ProblemCheck check(support_, problem);
                const ProblemReport report =
                    checked_report(session_, check, problem, named_for(kernel, problem.problem));
                summary.add(report);
                reports_.push_back(to_json(report));
                add_failures(report, failures_);
            }
            fmt::print("{}", summary.line("grid", kernel.name, group.head_dims));
            std::fflush(stdout);
            problems_ += summary.problems();
            failed_ += summary.failed();
        }
    }

    int problems() const noexcept { return problems_; }
    int failed() const noexcept { return failed_; }
    const std::vector<std::string>& failures() const noexcept { return failures_; }
    const json& reports() const noexcept { return reports_; }

  private:
    NamedConfig named_for(const NamedConfig& kernel, const AttentionProblem& problem) const {
        const TileConfig config =
            config_for(kernel, problem, session_.device().properties().target);
        return {.name = table_name(kernel.name, config), .config = config};
    }

    /// Nearly each problem has kernels of its own, which take a core a second or more.
    void compile(const NamedConfig& kernel, const std::vector<CheckedProblem>& problems) {
        verification::parallel_for(
            static_cast<std::int64_t>(problems.size()), [&](std::int64_t index) {
                const AttentionProblem& problem = problems[static_cast<std::size_t>(index)].problem;
                session_.runtime().backward(problem, named_for(kernel, problem).config);
            });
    }

    const VerifyOptions& options_;
    Session& session_;
    SupportKernels support_;
    json reports_ = json::array();
    std::vector<std::string> failures_;
    int problems_ = 0;
    int failed_ = 0;
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
    const auto start = std::chrono::steady_clock::now();

    std::vector<GridShare> shares;
    for (const NamedConfig& kernel : kernels) {
        shares.push_back(grid_share(grid, kernel, target));
    }

    print_heading(session->runtime(), options.device);
    GridRun run(options, *session);
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        run.run(kernels[i], shares[i]);
    }
    fmt::print("\n");
    json not_taken = json::array();
    for (std::size_t i = 0; i < kernels.size(); ++i) {
        fmt::print("{}", share_text(kernels[i].name, shares[i]));
        not_taken.push_back(to_json(kernels[i].name, shares[i]));
    }

    print_failures(options, run.failures());
    print_bank_conflicts(*session);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print("\n{} problems, {} failed ({:.1f} s)\n", run.problems(), run.failed(),
               seconds.count());
    if (!options.json.empty()) {
        json document = environment(session->runtime(), options.device);
        document["grid"] = to_string(*options.grid);
        document["problems"] = run.problems();
        document["failed"] = run.failed();
        document["seconds"] = seconds.count();
        document["kernels"] = not_taken;
        document["reports"] = run.reports();
        write_json(options.json, document, std::cout);
    }
    // A kernel that was asked for and takes nothing has not been verified.
    return run.failed() == 0 && run.problems() > 0 ? 0 : 1;
}

}  // namespace backlight::tool
