// The kernel for head dimensions above 128, on the emulated device against fp64, with outputs and
// workspace full of NaN beforehand and guards around both.
#include "emulated_test_support.hpp"
#include "general_problems.hpp"

namespace backlight::test {

namespace {

tool::CheckedProblem problem_of(std::int64_t head_dim, std::int64_t head_dim_v,
                                std::int64_t seqlen_q, std::int64_t seqlen_kv,
                                DataType dtype = DataType::bf16) {
    tool::CheckedProblem problem = test::problem_of(seqlen_q, seqlen_kv, head_dim, dtype);
    problem.problem.head_dim_v = head_dim_v;
    return problem;
}

/// With one place of dO.
TileConfig one_stage() {
    TileConfig config = kernel_preset("v4");
    config.warps = 8;
    config.stages = 1;
    return config;
}

TEST_CASE("wide heads: 256 columns match fp64 with two places of dO and with one") {
    EmulatedSession session;
    const tool::CheckedProblem problem = problem_of(256, 256, 128, 128);
    require_right(session, problem, kernel_preset("v4"));
    require_right(session, problem, one_stage());
}

TEST_CASE("wide heads: masks and odd lengths match fp64 at 192 and 128 columns") {
    EmulatedSession session;
    tool::CheckedProblem problem = problem_of(192, 128, 97, 150);
    for (const MaskAlignment alignment : {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
        problem.problem.causal = true;
        problem.problem.mask_alignment = alignment;
        require_right(session, problem, kernel_preset("v4"));
    }
    std::swap(problem.problem.seqlen_q, problem.problem.seqlen_kv);
    require_right(session, problem, kernel_preset("v4"));
}

TEST_CASE("wide heads: windows of grouped heads match fp64 in fp32 at 200 and 136 columns") {
    EmulatedSession session;
    tool::CheckedProblem problem = problem_of(200, 136, 130, 97);
    problem.problem.batch = 2;
    problem.problem.heads = 4;
    problem.problem.heads_kv = 2;
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.window_left = 40;
    problem.problem.window_right = 5;
    require_right(session, problem, kernel_preset("v4"));
    require_right(session, problem, one_stage());
    // Keys that nobody sees.
    problem.problem.seqlen_q = 33;
    problem.problem.mask_alignment = MaskAlignment::top_left;
    problem.problem.seqlen_kv = 300;
    require_right(session, problem, kernel_preset("v4"));
    problem.problem.accumulate_gradients = true;
    require_right(session, problem, kernel_preset("v4"));
}

TEST_CASE("wide heads: V of four panels passes where K has one in fp16") {
    EmulatedSession session;
    tool::CheckedProblem problem = problem_of(8, 256, 70, 65, DataType::fp16);
    problem.layout = tool::Layout::bshd;
    require_right(session, problem, kernel_preset("v4"));
    require_right(session, problem, one_stage());
    problem.inputs = verification::InputKind::low_lse;
    require_right(session, problem, kernel_preset("v4"));
}

TEST_CASE("wide heads: no schedule changes dK and dV") {
    EmulatedSession session;
    const tool::CheckedProblem problem = problem_of(192, 128, 160, 128);
    require_same_bits(session, problem, kernel_preset("v4"), 10);
    require_same_bits(session, problem, one_stage(), 10);
}

TEST_CASE("wide heads: rows whose LSE is infinite add nothing to any gradient") {
    EmulatedSession session;
    require_zeros_where_lse_is_infinite(session, problem_of(192, 128, 64, 64), kernel_preset("v4"));
}

}  // namespace

}  // namespace backlight::test
