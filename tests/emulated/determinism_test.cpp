// Deterministic problems: dQ is summed in one order, whichever blocks run side by side and whatever
// holds them up.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

namespace resident = mma_resident_edits;
namespace wgmma = wgmma_edits;
constexpr EditsOf edit_wide{"attention_backward_mma_resident_wide"};
using enum FaultKind;
using emulation::GridOrder;

/// Heads of six key tiles, so that every element of dQ has many parts; in fp32 each order of them
/// shows.
tool::CheckedProblem square_problem_of(std::int64_t seqlen, std::int64_t head_dim, bool causal) {
    tool::CheckedProblem problem = square_problem(1, 2, seqlen, head_dim, causal);
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.deterministic = true;
    problem.repeats = 1;
    return problem;
}
tool::CheckedProblem problem_of(bool causal) {
    return square_problem_of(384, 64, causal);
}
/// All that makes tiles of a row visit others than their neighbours do.
tool::CheckedProblem uneven() {
    tool::CheckedProblem problem = problem_of(false);
    problem.problem.heads = 4;
    problem.problem.heads_kv = 2;
    problem.problem.seqlen_q = 200;
    problem.problem.seqlen_kv = 330;
    problem.problem.window_left = 110;
    problem.problem.window_right = 70;
    return problem;
}

/// Of key tiles twice as long.
tool::CheckedProblem wgmma_problem(std::int64_t head_dim, bool causal) {
    return square_problem_of(512, head_dim, causal);
}
tool::CheckedProblem wide_problem(bool causal) {
    return square_problem_of(256, 192, causal);
}

void require_same_bits_side_by_side(const tool::CheckedProblem& problem) {
    for (const char* preset : {"v4", "v5"}) {
        CAPTURE(preset);
        require_same_bits(problem, kernel_preset(preset), std::array{GridOrder::random},
                          std::array{1, 2, 7});
    }
}

TEST_CASE("deterministic: all gradients are the same bits by any number of host threads") {
    require_same_bits_side_by_side(problem_of(false));
    require_same_bits_side_by_side(problem_of(true));
}
TEST_CASE("deterministic: all gradients are the same bits with windows and groups of heads") {
    require_same_bits_side_by_side(uneven());
}
TEST_CASE("deterministic: query tiles of 64 and a mask over unequal lengths give the same bits") {
    tool::CheckedProblem problem = problem_of(true);
    problem.problem.seqlen_q = 200;
    TileConfig config = kernel_preset("v4");
    config.block_q = 64;
    require_same_bits(problem, config, std::array{GridOrder::random}, std::array{1, 5});
}

TEST_CASE("deterministic: wgmma gives the same bits by any number of host threads") {
    for (const bool causal : {false, true}) {
        for (const std::int64_t head_dim : {64, 128}) {
            require_same_bits(wgmma_problem(head_dim, causal), kernel_preset("wgmma"),
                              std::array{GridOrder::random}, std::array{1, 5});
        }
    }
    require_same_bits(uneven(), kernel_preset("wgmma"), std::array{GridOrder::random},
                      std::array{1, 5});
}
TEST_CASE("deterministic: wide heads give the same bits by any number of host threads") {
    require_same_bits(wide_problem(true), kernel_preset("v4"), std::array{GridOrder::random},
                      std::array{1, 5});
    tool::CheckedProblem problem = uneven();
    problem.problem.head_dim = 192;
    problem.problem.head_dim_v = 128;
    require_same_bits(problem, kernel_preset("v4"), std::array{GridOrder::random},
                      std::array{1, 5});
}

TEST_CASE("deterministic: no schedule is reported or changes a bit") {
    EmulatedSession session;
    require_same_bits(session, uneven(), kernel_preset("v5"), 10);
    require_same_bits(session, uneven(), kernel_preset("wgmma"), 10);
}

/// Whether any of so many runs side by side has other bits of dQ than the first.
bool bits_change(const ProblemRun& run, const std::vector<SourceEdit>& edits, int runs) {
    EmulatedSession session({.seed = 1, .host_threads = 6}, edits);
    tool::ProblemCheck check(session.kernels(), run.problem);
    const auto plan = session.runtime().backward(check.data().problem(), run.config);
    std::vector<std::uint16_t> first;
    for (int number = 0; number < runs; ++number) {
        session.reseed(static_cast<std::uint64_t>(number) + 1);
        check.data().poison();
        check.data().run(*plan);
        session.session().synchronise();
        std::vector<std::uint16_t> d_q = check.data().gradients().d_q;
        if (number > 0 && d_q != first) {
            return true;
        }
        first = std::move(d_q);
    }
    return false;
}

TEST_CASE("deterministic: additions out of turn change the bits of dQ") {
    constexpr int runs = 12;
    using resident::edit;
    const ProblemRun run{.problem = problem_of(false), .config = kernel_preset("v4")};
    CHECK_FALSE(bits_change(run, {}, runs));
    CHECK(bits_change(run, {edit("if (before > 0) {", "if (false) {")}, runs));
    // The first two may change places: a + b is b + a.
    CHECK(bits_change(run, {edit("if (before > 0) {", "if (before > 2) {")}, runs));
    CHECK(bits_change(run, {edit("static_cast<uint32_t>(before));", "1);")}, runs));
}
TEST_CASE("deterministic: additions of wgmma and of wide heads out of turn change the bits of dQ") {
    constexpr int runs = 12;
    const ProblemRun of_wgmma{.problem = wgmma_problem(64, false),
                              .config = kernel_preset("wgmma")};
    CHECK_FALSE(bits_change(of_wgmma, {}, runs));
    CHECK(bits_change(of_wgmma, {wgmma::edit("if (before > 0) {", "if (false) {")}, runs));
    // Counted when the source has been read, before the sum has come about.
    CHECK(bits_change(of_wgmma,
                      {wgmma::edit("bulk_wait<0>();\n        taken.post",
                                   "bulk_wait_read<0>();\n        taken.post")},
                      runs));
    const ProblemRun wide{.problem = wide_problem(false), .config = kernel_preset("v4")};
    CHECK_FALSE(bits_change(wide, {}, runs));
    CHECK(bits_change(wide, {edit_wide("if (before > 0) {", "if (false) {")}, runs));
}

TEST_CASE("deterministic: a turn that never comes is a deadlock") {
    using resident::dropped;
    using resident::edit;
    const ProblemRun run{.problem = problem_of(true), .config = kernel_preset("v4")};
    const ProblemRun of_wgmma{.problem = wgmma_problem(64, true), .config = kernel_preset("wgmma")};
    const ProblemRun wide{.problem = wide_problem(true), .config = kernel_preset("v4")};
    const std::vector<PlantedFault> faults = {
        {"tickets in the other order",
         {dropped("kv_tile = kv_tiles - 1 - kv_tile;")},
         run,
         {deadlock}},
        {"a turn too late",
         {edit("if (before > 0) {", "{"),
          edit("static_cast<uint32_t>(before));", "static_cast<uint32_t>(before + 1));")},
         run,
         {deadlock}},
        // Memory that nothing has written holds the largest number, after which comes 0.
        {"counters not reset",
         {{"attention_backward_delta.cu", "+ tile] = 0;", "+ tile];"}},
         run,
         {deadlock}},
        {"turns at all but the last query tile not counted",
         {dropped("kernel::count_turn_before(arguments_, key_tile_, head, query_start);")},
         run,
         {deadlock}},
        {"the turn at the last query tile not counted",
         {dropped("kernel::count_last_turn(arguments_, key_tile_);")},
         run,
         {deadlock}},
        {"turns of wgmma not counted before the next",
         {wgmma::dropped(
             "sum.count_turn(taken_turns_, now, visit_of(arguments_, now, step + 1));")},
         of_wgmma,
         {deadlock}},
        {"turns of wgmma taken and not told of",
         {wgmma::dropped("count_global(counter);")},
         of_wgmma,
         {deadlock}},
        {"a turn's slot not given back",
         {wgmma::dropped("mbarrier_arrive(shared_.turn_empty(ring.slot()));")},
         of_wgmma,
         {divergent_collective}},
        {"the turn warp not let go",
         {wgmma::dropped("taken_turns_.post(nullptr);")},
         of_wgmma,
         {deadlock}},
        {"the last turn of wgmma not counted",
         {wgmma::dropped("sum.count_turn(taken_turns_, found,\n                               "
                         "visit_of(arguments_, found, last_step_of(tile)));")},
         of_wgmma,
         {deadlock}},
        {"turns of wide heads not counted",
         {edit_wide("pair() == (tile_ + pairs / 2) % pairs", "false")},
         wide,
         {deadlock}},
        {"no arrival of the warp that looks",
         {edit_wide("arrive(shared_.exchanged());\n    }\n    /// Counts", "}\n    /// Counts")},
         wide,
         {deadlock}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
