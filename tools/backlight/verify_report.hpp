#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "problem_check.hpp"
#include "session/session.hpp"
#include "verify.hpp"
#include "verify_table.hpp"

// What `verify` and `verify --grid` have in common.
namespace backlight::tool {

/// JSON has no infinity: a tensor that is not finite has null for its errors.
nlohmann::json finite_or_null(double value);

nlohmann::json to_json(const ProblemReport& report);

/// What ran the kernels, for the JSON.
nlohmann::json environment(Runtime& runtime, const DeviceChoice& device);

/// The kernel as the problem gets it. Nothing where it refuses the problem, as kernels do with
/// lengths that their tiles do not divide and cards that they were not written for; and nothing for
/// "default" where another of the kernels is the same.
std::optional<NamedConfig> kernel_for(const Session& session,
                                      const std::vector<NamedConfig>& kernels, std::size_t index,
                                      const AttentionProblem& problem);

/// Runs the kernel on the problem that `check` is of. What the emulated device finds is one of the
/// report's failures.
ProblemReport checked_report(Session& session, ProblemCheck& check, const CheckedProblem& problem,
                             const NamedConfig& kernel);

void print_heading(Runtime& runtime, const DeviceChoice& device);

/// What came of a verification so far, from the heading on.
class VerificationTally {
  public:
    /// The report goes into the JSON; what is returned stands there, to be added to.
    nlohmann::json& add(const ProblemReport& report);
    /// A line of the table and the problems that it is of, if it is of any.
    void add_line(const KernelSummary& summary, const std::string& line);

    /// Prints what failed, a remark if there is one, the emulated device's counts and the sums, and
    /// writes the JSON, with `more` in it, where it is asked for.
    void finish(const VerifyOptions& options, Session& session, nlohmann::json more = {},
                const std::string& remark = {});

    int problems() const noexcept { return problems_; }
    int failed() const noexcept { return failed_; }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    nlohmann::json reports_ = nlohmann::json::array();
    /// "v3 batch=1 …: dQ: …".
    std::vector<std::string> failures_;
    int problems_ = 0;
    int failed_ = 0;
};

}  // namespace backlight::tool
