// The wgmma kernel's accumulator of dQ, whose places several heads use one after another: without a
// fault, and with faults planted in who waits, counts and leaves zeros.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "wgmma_edits.hpp"

namespace backlight::test {

namespace {

using emulation::GridOrder;
using enum FaultKind;

/// Eight heads that share three places of the accumulator.
ProblemRun eight_heads() {
    ProblemRun run{.problem = square_problem(2, 4, 128, 64, false),
                   .config = kernel_preset("wgmma")};
    run.config.heads_per_group = 1;
    return run;
}
std::vector<SourceEdit> with_three_places(std::vector<SourceEdit> edits = {}) {
    edits.push_back(edit("return arguments.accumulator_heads;", "return 3;"));
    edits.push_back(edit("round - arguments.conversion_lag", "round - 1"));
    return edits;
}

TEST_CASE("wgmma: heads that share a place of the accumulator match fp64 under any schedule") {
    EmulatedSession session(one_thread(), with_three_places());
    const Outcome outcome = run_seeds(session, eight_heads(), 20);
    CHECK_MESSAGE(outcome.passed(), to_string(outcome));
}

TEST_CASE("wgmma: blocks that run side by side share places of the accumulator") {
    for (const GridOrder order : {GridOrder::descending, GridOrder::random}) {
        EmulatedSession session({.seed = 1, .grid_order = order, .host_threads = 4},
                                with_three_places());
        const Outcome outcome = run_seeds(session, eight_heads(), 4);
        CHECK_MESSAGE(outcome.passed(), to_string(outcome));
    }
}

TEST_CASE("wgmma: a place of the accumulator that is taken too early or unclean is found") {
    struct Fault {
        const char* name;
        SourceEdit edit;
        std::vector<FaultKind> reports;
    };
    const std::vector<Fault> faults = {
        {"converted before it is complete",
         edit("wait_for_global_counter<256>(arguments_.counters.added + "
              "conversion.batch_head,\n                                         "
              "static_cast<uint32_t>(kv_tiles_of(arguments_)));",
              ";"),
         {}},
        {"added before the zeros", edit("adds && head_before >= 0", "false"), {}},
        {"added before the zeros of the head before",
         edit("tile.batch_head - places_of(arguments)",
              "tile.batch_head - places_of(arguments) - 1"),
         {}},
        {"zeros told of before they are complete",
         edit("bulk_wait<0>();\n            count_global(arguments_.counters.converted",
              "bulk_wait_read<0>();\n            count_global(arguments_.counters.converted"),
         {}},
        {"a sum told of before it is complete",
         edit("bulk_wait<0>();\n        count_global(added_)",
              "bulk_wait_read<0>();\n        count_global(added_)"),
         {}},
        {"no zeros in the third place before the first head",
         {"attention_backward_delta.cu", "batch_head >= arguments.accumulator_heads",
          "batch_head >= 2"},
         {}},
        {"zeros not made for the last head",
         edit("conversion.batch_head + places_of(arguments_) < arguments_.batch_heads",
              "conversion.batch_head + places_of(arguments_) + 1 < arguments_.batch_heads"),
         {deadlock}},
        {"no zeros", dropped("zero(half);"), {}},
        {"zeros of half a place",
         edit("shared_.zeros(), zeros_bytes);", "shared_.zeros(), zeros_bytes / 2);"),
         {}},
        {"zeros of another place", edit("bulk_store(half + i,", "bulk_store(half,"), {}},
        {"no zeros to store", dropped("        store_zeros();\n"), {uninitialised_read}},
        {"zeros that the asynchronous proxy does not see",
         edit("float4{0, 0, 0, 0});\n        }\n        fence_shared_before_async_proxy();",
              "float4{0, 0, 0, 0});\n        }"),
         {missing_proxy_fence}},
        {"nobody told",
         dropped("count_global(arguments_.counters.converted + conversion.batch_head);"),
         {deadlock}},
    };
    for (const Fault& fault : faults) {
        EmulatedSession session(one_thread(), with_three_places({fault.edit}));
        const AcceptOutcome found = found_by(fault.reports);
        const Outcome outcome = run_seeds(session, eight_heads(), 20, found);
        CHECK_MESSAGE(found(outcome), fault.name << ": " << to_string(outcome));
    }
}

TEST_CASE("wgmma: a counter that keeps what the run before has counted is found") {
    tool::CheckedProblem twice = eight_heads().problem;
    twice.repeats = 2;
    const auto outcome_with = [&](std::vector<SourceEdit> edits) {
        EmulatedSession session(one_thread(), with_three_places(std::move(edits)));
        tool::ProblemCheck check(session.kernels(), twice);
        return outcome_of([&] {
            return fmt::format("{}",
                               fmt::join(check.check({}, eight_heads().config).failures, "; "));
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

}  // namespace

}  // namespace backlight::test
