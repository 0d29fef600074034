#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "problem_check.hpp"
#include "session/session.hpp"
#include "verify.hpp"

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

/// "v3 batch=1 …: dQ: …" for each of the report's failures.
void add_failures(const ProblemReport& report, std::vector<std::string>& failures);

void print_heading(Runtime& runtime, const DeviceChoice& device);
void print_failures(const VerifyOptions& options, const std::vector<std::string>& failures);
/// The emulated device's counts, where it was asked to make them.
void print_bank_conflicts(const Session& session);

}  // namespace backlight::tool
