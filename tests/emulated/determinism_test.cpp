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

using namespace mma_resident_edits;
using enum FaultKind;
using emulation::GridOrder;

/// Heads of six key tiles, so that every element of dQ has many parts; in fp32 each order of them
/// shows.
tool::CheckedProblem problem_of(bool causal) {
    tool::CheckedProblem problem = square_problem(1, 2, 384, 64, causal);
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.deterministic = true;
    problem.repeats = 1;
    return problem;
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

TEST_CASE("deterministic: no schedule is reported or changes a bit") {
    EmulatedSession session;
    require_same_bits(session, uneven(), kernel_preset("v5"), 10);
}

/// Whether any of so many runs side by side has other bits of dQ than the first.
bool bits_change(const std::vector<SourceEdit>& edits, int runs) {
    EmulatedSession session({.seed = 1, .host_threads = 6}, edits);
    tool::ProblemCheck check(session.kernels(), problem_of(false));
    const auto plan = session.runtime().backward(check.data().problem(), kernel_preset("v4"));
    std::vector<std::uint16_t> first;
    for (int run = 0; run < runs; ++run) {
        session.reseed(static_cast<std::uint64_t>(run) + 1);
        check.data().poison();
        check.data().run(*plan);
        session.session().synchronise();
        std::vector<std::uint16_t> d_q = check.data().gradients().d_q;
        if (run > 0 && d_q != first) {
            return true;
        }
        first = std::move(d_q);
    }
    return false;
}

TEST_CASE("deterministic: additions out of turn change the bits of dQ") {
    constexpr int runs = 12;
    CHECK_FALSE(bits_change({}, runs));
    CHECK(bits_change({edit("if (before > 0) {", "if (false) {")}, runs));
    // The first two may change places: a + b is b + a.
    CHECK(bits_change({edit("if (before > 0) {", "if (before > 2) {")}, runs));
    CHECK(bits_change({edit("static_cast<uint32_t>(before));", "1);")}, runs));
}

TEST_CASE("deterministic: a turn that never comes is a deadlock") {
    const ProblemRun run{.problem = problem_of(true), .config = kernel_preset("v4")};
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
         {dropped("count_turn(arguments_, key_tile_, head, query_start - block_q);")},
         run,
         {deadlock}},
        {"the turn at the last query tile not counted",
         {edit("lane_ == 0 && !is_unseen", "lane_ > 31 && !is_unseen")},
         run,
         {deadlock}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
