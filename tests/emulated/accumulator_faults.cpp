#include "accumulator_faults.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace backlight::test {

namespace {

using emulation::GridOrder;

/// The host would give them all a place.
std::vector<SourceEdit> on_three_places(int lag, std::vector<SourceEdit> edits = {}) {
    const std::string file = "attention_backward_rounds/work.cuh";
    edits.push_back({file, "return arguments.accumulator_heads;", "return 3;"});
    edits.push_back({file, "round - arguments.conversion_lag", fmt::format("round - {}", lag)});
    return edits;
}

ProblemRun eight_heads(const char* preset) {
    ProblemRun run{.problem = square_problem(2, 4, 128, 64, false),
                   .config = kernel_preset(preset)};
    run.config.heads_per_group = 1;
    return run;
}

ProblemRun few_queries(const char* preset) {
    ProblemRun run = eight_heads(preset);
    run.problem.problem.seqlen_q = 64;
    run.problem.problem.seqlen_kv = 384;
    return run;
}

}  // namespace

void require_right_with_three_places(const ThreePlaces& places) {
    const auto require_passed = [&](EmulatedSession& session, int seeds) {
        // Also with fewer query tiles than key tiles: tickets that convert nothing count as well.
        for (const ProblemRun& run : {eight_heads(places.preset), few_queries(places.preset)}) {
            const Outcome outcome = run_seeds(session, run, seeds);
            CHECK_MESSAGE(outcome.passed(), to_string(outcome));
        }
    };
    EmulatedSession one(one_thread(), on_three_places(places.lag));
    require_passed(one, 20);
    for (const GridOrder order : {GridOrder::descending, GridOrder::random}) {
        EmulatedSession several({.seed = 1, .grid_order = order, .host_threads = 4},
                                on_three_places(places.lag));
        require_passed(several, 4);
    }
}

void require_found_with_three_places(const ThreePlaces& places,
                                     const std::vector<AccumulatorFault>& faults) {
    for (const AccumulatorFault& fault : faults) {
        EmulatedSession session({.seed = 1, .host_threads = fault.host_threads},
                                on_three_places(places.lag, {fault.edit}));
        const AcceptOutcome found = found_by(fault.reports);
        const Outcome outcome = run_seeds(session, eight_heads(places.preset), 20, found);
        CHECK_MESSAGE(found(outcome), fault.name << ": " << to_string(outcome));
    }
}

void require_counters_are_reset(const ThreePlaces& places) {
    tool::CheckedProblem twice = eight_heads(places.preset).problem;
    twice.repeats = 2;
    const auto outcome_with = [&](std::vector<SourceEdit> edits) {
        EmulatedSession session(one_thread(), on_three_places(places.lag, std::move(edits)));
        tool::ProblemCheck check(session.kernels(), twice);
        return outcome_of([&] {
            return fmt::format(
                "{}", fmt::join(check.check({}, eight_heads(places.preset).config).failures, "; "));
        });
    };
    const Outcome unchanged = outcome_with({});
    CHECK_MESSAGE(unchanged.passed(), to_string(unchanged));
    for (const std::string reset :
         {"*arguments.counters.tickets = 0;", "arguments.counters.added[batch_head] = 0;",
          "arguments.counters.converted[batch_head] = 0;"}) {
        const Outcome kept = outcome_with({{"attention_backward_delta.cu", reset, ";"}});
        CHECK_MESSAGE(!kept.passed(), reset);
    }
}

}  // namespace backlight::test
