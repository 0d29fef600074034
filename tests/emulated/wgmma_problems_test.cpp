// What the wgmma kernel takes beyond equal lengths of whole tiles, on the emulated device against
// fp64, outputs and workspace full of NaN beforehand, and guards around both. Few kernel forms: the
// lengths of each test have the same remainders.
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "emulated_test_support.hpp"
#include "general_problems.hpp"

namespace backlight::test {

namespace {

void require_right_by_wgmma(EmulatedSession& session, const tool::CheckedProblem& problem) {
    require_right(session, with_fitting_inputs(problem), kernel_preset("wgmma"));
}

TEST_CASE("wgmma: lengths that tiles do not divide match fp64") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] :
         {std::pair{1, 1}, std::pair{1, 300}, std::pair{63, 17}, std::pair{65, 63},
          std::pair{130, 129}, std::pair{200, 333}}) {
        require_right_by_wgmma(session, problem_of(seqlen_q, seqlen_kv));
    }
    // Of queries alone, whose steps are counted.
    for (const std::int64_t seqlen_q : {1, 100, 190}) {
        require_right_by_wgmma(session, problem_of(seqlen_q, 256));
    }
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair{1, 63}, std::pair{130, 190}}) {
        tool::CheckedProblem problem = problem_of(seqlen_q, seqlen_kv, 128, DataType::fp16);
        problem.layout = tool::Layout::bshd;
        require_right_by_wgmma(session, problem);
    }
}

TEST_CASE("wgmma: keys that do not exist add nothing where their P would be infinite") {
    EmulatedSession session;
    for (const std::int64_t seqlen_kv : {60, 90, 190}) {
        tool::CheckedProblem problem = problem_of(40, seqlen_kv);
        problem.inputs = verification::InputKind::low_lse;
        require_right_by_wgmma(session, problem);
    }
}

const std::vector<Mask> masks = {{.causal = true},
                                 {.left = 0, .right = 0},
                                 {.left = 40, .right = 5},
                                 {.causal = true, .left = 130},
                                 {.left = 100},
                                 {.right = 33},
                                 {.left = 1, .right = 200}};

void check_masks(std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t head_dim,
                 DataType dtype) {
    EmulatedSession session;
    for_each_mask(
        problem_of(seqlen_q, seqlen_kv, head_dim, dtype), masks,
        [&](const tool::CheckedProblem& problem) { require_right_by_wgmma(session, problem); });
}

TEST_CASE("wgmma: masks and windows match fp64 where there are more keys than queries") {
    check_masks(70, 500, 64, DataType::bf16);
}
TEST_CASE("wgmma: masks and windows match fp64 where there are more queries than keys") {
    check_masks(330, 150, 64, DataType::bf16);
}
TEST_CASE("wgmma: masks and windows match fp64 where lengths are equal") {
    check_masks(384, 384, 128, DataType::bf16);
    check_masks(201, 201, 64, DataType::bf16);
}

TEST_CASE("wgmma: groups of heads of any ratio match fp64") {
    EmulatedSession session;
    for (const auto& [heads, heads_kv] : {std::pair{2, 1}, std::pair{6, 2}, std::pair{5, 1}}) {
        require_right_by_wgmma(session, grouped(heads, heads_kv, 128, 256));
        tool::CheckedProblem causal = grouped(heads, heads_kv, 256, 256, 128);
        causal.problem.causal = true;
        require_right_by_wgmma(session, causal);
    }
    tool::CheckedProblem window = grouped(6, 2, 210, 210);
    window.problem.window_left = 50;
    window.problem.window_right = 20;
    window.layout = tool::Layout::packed_qkv;
    require_right_by_wgmma(session, window);
}

TEST_CASE("wgmma: no schedule changes dK and dV of groups of heads under a window") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(6, 2, 210, 210);
    problem.problem.window_left = 50;
    problem.problem.window_right = 20;
    require_same_bits(session, problem, kernel_preset("wgmma"), 10);
}

TEST_CASE("wgmma: fp32 gradients match fp64") {
    EmulatedSession session;
    for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::bshd}) {
        tool::CheckedProblem problem = grouped(4, 2, 150, 200);
        problem.problem.gradient_type = GradientType::fp32;
        problem.problem.causal = true;
        problem.layout = layout;
        require_right_by_wgmma(session, problem);
    }
    tool::CheckedProblem whole = problem_of(128, 256, 128, DataType::fp16);
    whole.problem.gradient_type = GradientType::fp32;
    require_right_by_wgmma(session, whole);
    tool::CheckedProblem narrow = problem_of(70, 256, 72);
    narrow.problem.gradient_type = GradientType::fp32;
    narrow.problem.head_dim_v = 104;
    require_right_by_wgmma(session, narrow);
}

TEST_CASE("wgmma: gradients are added to what they hold") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(4, 2, 150, 200);
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.accumulate_gradients = true;
    problem.problem.causal = true;
    problem.layout = tool::Layout::padded;
    problem.repeats = 2;
    require_right_by_wgmma(session, problem);
    problem = problem_of(128, 256, 128);
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.accumulate_gradients = true;
    require_right_by_wgmma(session, problem);
}

TEST_CASE("wgmma: broadcast inputs match fp64") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(4, 2, 150, 200);
    problem.problem.batch = 2;
    problem.problem.causal = true;
    problem.layout = tool::Layout::broadcast;
    require_right_by_wgmma(session, problem);
}

TEST_CASE("wgmma: head dimensions of any multiple of 8 up to 128 match fp64") {
    EmulatedSession session;
    for (const auto& [head_dim, head_dim_v] :
         {std::pair{8, 8}, std::pair{24, 56}, std::pair{72, 128}, std::pair{128, 8}}) {
        tool::CheckedProblem problem = problem_of(70, 130, head_dim);
        problem.problem.head_dim_v = head_dim_v;
        require_right_by_wgmma(session, problem);
    }
    tool::CheckedProblem square = problem_of(128, 128, 96);
    square.problem.causal = true;
    require_right_by_wgmma(session, square);
}

TEST_CASE("wgmma: odd lengths as constants give the bits of dK and dV of arguments") {
    EmulatedSession session;
    tool::CheckedProblem problem = problem_of(130, 190);
    problem.problem.causal = true;
    tool::ProblemCheck check(session.kernels(), problem);
    require_length_modes_alike(session.kernels(), check);
}

}  // namespace

}  // namespace backlight::test
