// What the register-resident mma kernel takes beyond equal lengths of whole tiles, on the emulated
// device against fp64: with the conversion of dQ in a kernel of its own (v4) and in its own blocks
// (v5), outputs and workspace full of NaN beforehand, and guards around both.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "attention/tiles.hpp"
#include "emulated_test_support.hpp"
#include "general_problems.hpp"
#include "gradient_values.hpp"

namespace backlight::test {

namespace {

constexpr std::array presets = {"v4", "v5"};
using Operand = tool::ProblemData::Operand;

/// By both presets, and at head dimensions up to 64 with query tiles of 64 too.
void require_right_by_all(EmulatedSession& session, const tool::CheckedProblem& given) {
    const tool::CheckedProblem problem = with_fitting_inputs(given);
    for (const char* preset : presets) {
        TileConfig config = kernel_preset(preset);
        CAPTURE(preset);
        require_right(session, problem, config);
        if (attention::tile_head_dim(problem.problem) == 64) {
            config.block_q = 64;
            require_right(session, problem, config);
        }
    }
}

constexpr std::array odd_lengths = {std::pair{1, 1},   std::pair{1, 200},   std::pair{17, 63},
                                    std::pair{63, 17}, std::pair{64, 65},   std::pair{65, 64},
                                    std::pair{127, 1}, std::pair{200, 333}, std::pair{333, 200}};

TEST_CASE("mma_resident: lengths that tiles do not divide match fp64") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] : odd_lengths) {
        require_right_by_all(session, problem_of(seqlen_q, seqlen_kv));
    }
}

TEST_CASE("mma_resident: lengths that tiles do not divide match fp64 in fp16 at head_dim 128") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair{1, 63}, std::pair{130, 65}}) {
        for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::bshd}) {
            tool::CheckedProblem problem = problem_of(seqlen_q, seqlen_kv, 128, DataType::fp16);
            problem.layout = layout;
            require_right_by_all(session, problem);
        }
    }
}

TEST_CASE("mma_resident: keys that do not exist add nothing where their P would be infinite") {
    EmulatedSession session;
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        tool::CheckedProblem problem = problem_of(40, 90, 64, dtype);
        problem.inputs = verification::InputKind::low_lse;
        require_right_by_all(session, problem);
    }
}

TEST_CASE("mma_resident: places of the accumulator are shared where lengths are odd") {
    EmulatedSession session;
    // Many heads of one tile of keys: the ring of places comes round.
    tool::CheckedProblem problem = problem_of(45, 50);
    problem.problem.batch = 30;
    problem.problem.heads = 45;
    TileConfig config = kernel_preset("v5");
    config.heads_per_group = 1;
    require_right(session, problem, config);
}

TEST_CASE("mma_resident: odd lengths as constants give the bits of dK and dV of arguments") {
    EmulatedSession session;
    const tool::CheckedProblem problem = problem_of(70, 130);
    tool::ProblemCheck check(session.kernels(), problem);
    require_length_modes_alike(session.kernels(), check);
}

const std::vector<Mask> masks = {{.causal = true},
                                 {.left = 0, .right = 0},
                                 {.left = 40, .right = 5},
                                 {.causal = true, .left = 70},
                                 {.left = 100},
                                 {.right = 33},
                                 {.left = 1, .right = 200},
                                 {.causal = true, .left = 1000}};

void check_masks(std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t head_dim,
                 DataType dtype) {
    EmulatedSession session;
    for_each_mask(
        problem_of(seqlen_q, seqlen_kv, head_dim, dtype), masks,
        [&](const tool::CheckedProblem& problem) { require_right_by_all(session, problem); });
}

TEST_CASE("mma_resident: masks and windows match fp64 where there are more keys than queries") {
    check_masks(96, 321, 64, DataType::bf16);
}
TEST_CASE("mma_resident: masks and windows match fp64 where there are more queries than keys") {
    check_masks(321, 96, 64, DataType::fp16);
}
TEST_CASE("mma_resident: masks and windows match fp64 where lengths are equal") {
    check_masks(192, 192, 128, DataType::bf16);
    check_masks(67, 67, 64, DataType::bf16);
}
TEST_CASE("mma_resident: masks and windows match fp64 where one length is 1") {
    check_masks(1, 200, 64, DataType::bf16);
    check_masks(200, 1, 64, DataType::bf16);
}

TEST_CASE("mma_resident: groups of heads of any ratio match fp64") {
    EmulatedSession session;
    for (const auto& [heads, heads_kv] : {std::pair{2, 1}, std::pair{6, 2}, std::pair{5, 1}}) {
        require_right_by_all(session, grouped(heads, heads_kv, 128, 128));
        tool::CheckedProblem causal = grouped(heads, heads_kv, 100, 150, 128);
        causal.problem.causal = true;
        require_right_by_all(session, causal);
    }
}

TEST_CASE("mma_resident: groups of heads with a causal mask or a window match fp64") {
    EmulatedSession session;
    for (const tool::Layout layout : {tool::Layout::bshd, tool::Layout::packed_qkv}) {
        tool::CheckedProblem square = grouped(4, 2, 128, 128);
        square.problem.causal = true;
        square.layout = layout;
        require_right_by_all(session, square);
    }
    tool::CheckedProblem window = grouped(6, 2, 210, 210);
    window.problem.window_left = 50;
    window.problem.window_right = 20;
    require_right_by_all(session, window);
}

TEST_CASE("mma_resident: the rounds of v5 come round with groups of heads") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(60, 30, 40, 64);
    problem.problem.batch = 30;
    TileConfig config = kernel_preset("v5");
    config.heads_per_group = 1;
    require_right(session, problem, config);
}

TEST_CASE("mma_resident: no schedule changes dK and dV of groups of heads under a window") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(4, 2, 100, 130);
    problem.problem.causal = true;
    for (const char* preset : presets) {
        require_same_bits(session, problem, kernel_preset(preset), 10);
    }
}

TEST_CASE("mma_resident: fp32 gradients match fp64") {
    EmulatedSession session;
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::bshd}) {
            tool::CheckedProblem problem = problem_of(70, 100, 64, dtype);
            problem.problem.gradient_type = GradientType::fp32;
            problem.problem.causal = true;
            problem.layout = layout;
            require_right_by_all(session, problem);
        }
    }
    tool::CheckedProblem whole = problem_of(128, 128, 128);
    whole.problem.gradient_type = GradientType::fp32;
    require_right_by_all(session, whole);
}

TEST_CASE("mma_resident: gradients are added to what they hold") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(4, 2, 70, 100, 40);
    problem.problem.head_dim_v = 56;
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.accumulate_gradients = true;
    problem.repeats = 2;
    for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::padded}) {
        problem.layout = layout;
        require_right_by_all(session, problem);
    }
    problem = problem_of(128, 128, 128);
    problem.problem.gradient_type = GradientType::fp32;
    problem.problem.accumulate_gradients = true;
    problem.problem.causal = true;
    require_right_by_all(session, problem);
}

TEST_CASE("mma_resident: broadcast inputs match fp64") {
    EmulatedSession session;
    tool::CheckedProblem problem = grouped(4, 2, 70, 100);
    problem.problem.batch = 2;
    problem.layout = tool::Layout::broadcast;
    require_right_by_all(session, problem);
}

TEST_CASE("mma_resident: a sum with a gradient has the bits of the gradient that is added later") {
    EmulatedSession session;
    tool::CheckedProblem checked = problem_of(128, 128, 128);
    checked.problem.gradient_type = GradientType::fp32;
    checked.problem.causal = true;
    const auto values_of = [&](tool::ProblemData& data) {
        std::array<std::vector<float>, 3> values;
        constexpr std::array operands = {Operand::d_q, Operand::d_k, Operand::d_v};
        for (std::size_t i = 0; i < operands.size(); ++i) {
            values[i] = gradient_values(data.problem(), data.download(operands[i]));
        }
        return values;
    };
    for (const char* preset : presets) {
        CAPTURE(preset);
        std::array<std::vector<float>, 3> stored;
        std::array<std::vector<float>, 3> held;
        for (const bool accumulate : {false, true}) {
            checked.problem.accumulate_gradients = accumulate;
            tool::ProblemCheck check(session.kernels(), checked);
            tool::ProblemData& data = check.data();
            for (std::size_t i = 0; accumulate && i < held.size(); ++i) {
                held[i] = verification::normal_numbers(stored[i].size(), i);
            }
            if (accumulate) {
                data.set_gradients(held);
            }
            data.run(*session.runtime().backward(checked.problem, kernel_preset(preset)));
            session.session().synchronise();
            const auto values = values_of(data);
            if (!accumulate) {
                stored = values;
                continue;
            }
            // dQ is summed in another order by each run.
            for (const std::size_t i : {1, 2}) {
                std::size_t wrong = 0;
                for (std::size_t j = 0; j < values[i].size(); ++j) {
                    wrong += values[i][j] == held[i][j] + stored[i][j] ? 0U : 1U;
                }
                CHECK(wrong == 0);
            }
        }
    }
}

TEST_CASE("mma_resident: head dimensions of any multiple of 8 up to 128 match fp64") {
    EmulatedSession session;
    for (const auto& [head_dim, head_dim_v] :
         {std::pair{8, 8}, std::pair{40, 40}, std::pair{72, 72}, std::pair{96, 96},
          std::pair{64, 128}, std::pair{128, 64}, std::pair{128, 96}, std::pair{24, 56},
          std::pair{64, 8}, std::pair{8, 120}}) {
        tool::CheckedProblem problem = problem_of(70, 130, head_dim);
        problem.problem.head_dim_v = head_dim_v;
        require_right_by_all(session, problem);
    }
}

TEST_CASE("mma_resident: head dimensions match fp64 in fp16 in fp32 gradients and other layouts") {
    EmulatedSession session;
    for (const GradientType type : {GradientType::input, GradientType::fp32}) {
        tool::CheckedProblem problem = grouped(4, 2, 64, 64, 80);
        problem.problem.dtype = DataType::fp16;
        problem.problem.gradient_type = type;
        problem.problem.causal = true;
        problem.layout = tool::Layout::packed_qkv;
        require_right_by_all(session, problem);
        problem.problem.head_dim_v = 48;
        problem.layout = tool::Layout::bshd;
        require_right_by_all(session, problem);
    }
}

TEST_CASE("mma_resident: rows whose LSE is infinite add nothing to any gradient") {
    EmulatedSession session;
    for (const char* preset : presets) {
        require_zeros_where_lse_is_infinite(session, problem_of(96, 80), kernel_preset(preset));
    }
}

}  // namespace

}  // namespace backlight::test
