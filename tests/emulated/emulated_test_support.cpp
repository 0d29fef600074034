#include "emulated_test_support.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "compiler/kernel_store.hpp"
#include "runtime_implementation.hpp"

namespace backlight::test {

RuntimeOptions emulated_cache() {
    return {.cache_directory = BACKLIGHT_EMULATED_CACHE_DIR};
}

Runtime& emulated_runtime() {
    static Runtime runtime = emulation::make_emulated_runtime(one_thread(), emulated_cache());
    return runtime;
}

EmulatedSession::EmulatedSession(const EmulationOptions& options, std::vector<SourceEdit> edits)
    : session_(emulation::make_emulated_runtime(options, emulated_cache(), std::move(edits))),
      kernels_(session_),
      device_(&dynamic_cast<emulation::EmulatedDevice&>(session_.device())) {}

std::shared_ptr<const device::Kernel> EmulatedSession::kernel(const std::string& name,
                                                              const std::string& entry,
                                                              std::string_view text,
                                                              std::size_t dynamic_shared_bytes) {
    const compiler::KernelLookup compiled =
        runtime().implementation().store().get({.source = name,
                                                .entry = entry,
                                                .specialisation = {},
                                                .target = device_->properties().target,
                                                .text = std::string(text)});
    return device_->load(compiled.kernel->cubin, entry.c_str(), dynamic_shared_bytes);
}

std::string to_string(const Outcome& outcome) {
    return outcome.passed()
               ? "nothing found"
               : fmt::format("{}, seed {}: {}",
                             outcome.fault ? emulation::to_string(*outcome.fault) : "wrong numbers",
                             outcome.seed, outcome.message);
}

Outcome outcome_of(const std::function<std::string()>& run) {
    Outcome outcome;
    try {
        outcome.message = run();
    } catch (const emulation::KernelFault& fault) {
        outcome.fault = fault.kind();
        outcome.message = fault.what();
    }
    return outcome;
}

AcceptOutcome found_by(std::vector<FaultKind> reports) {
    return [reports = std::move(reports)](const Outcome& outcome) {
        return reports.empty() ? !outcome.fault && !outcome.passed()
                               : outcome.fault && std::ranges::count(reports, *outcome.fault) > 0;
    };
}

Outcome run_seeds(EmulatedSession& session, const ProblemRun& run, std::uint64_t seeds,
                  const AcceptOutcome& accept) {
    tool::CheckedProblem once = run.problem;
    once.repeats = 1;
    tool::ProblemCheck check(session.kernels(), once);
    const auto plan = session.runtime().backward(once.problem, run.config);
    Outcome outcome;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        session.reseed(seed);
        outcome = outcome_of(
            [&] { return fmt::format("{}", fmt::join(check.check({}, *plan).failures, "; ")); });
        outcome.seed = seed;
        if (accept(outcome)) {
            break;
        }
    }
    return outcome;
}

void require_right(EmulatedSession& session, tool::CheckedProblem problem,
                   const TileConfig& config) {
    problem.repeats = 1;
    require_passed(tool::check_problem(session.kernels(), problem, to_string(config), config));
}

void SameBits::check(tool::Gradients<std::uint16_t> gradients) {
    if (first_) {
        CHECK(gradients.d_k == first_->d_k);
        CHECK(gradients.d_v == first_->d_v);
        if (deterministic_) {
            CHECK(gradients.d_q == first_->d_q);
        }
    } else {
        first_ = std::move(gradients);
    }
}

void require_same_bits(EmulatedSession& session, tool::CheckedProblem problem,
                       const TileConfig& config, std::uint64_t seeds) {
    problem.repeats = 1;
    tool::ProblemCheck check(session.kernels(), problem);
    const auto plan = session.runtime().backward(problem.problem, config);
    const std::string name = to_string(config);
    CAPTURE(name);
    SameBits bits(problem.problem.deterministic);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
        CAPTURE(seed);
        session.reseed(seed);
        require_passed(check.check(name, *plan));
        bits.check(check.data().gradients());
    }
}

void require_same_bits(tool::CheckedProblem problem, const TileConfig& config,
                       std::span<const emulation::GridOrder> orders, std::span<const int> threads) {
    problem.repeats = 2;  // the second in the workspace that the first has left
    SameBits bits(problem.problem.deterministic);
    for (const emulation::GridOrder order : orders) {
        for (const int thread_count : threads) {
            EmulatedSession session({.seed = 3, .grid_order = order, .host_threads = thread_count});
            tool::ProblemCheck check(session.kernels(), problem);
            require_passed(check.check(to_string(config), config));
            bits.check(check.data().gradients());
        }
    }
}

}  // namespace backlight::test
