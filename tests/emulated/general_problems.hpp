// Problems beyond equal lengths of whole tiles that the tests of several kernels have.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "emulated_test_support.hpp"

namespace backlight::test {

inline tool::CheckedProblem problem_of(std::int64_t seqlen_q, std::int64_t seqlen_kv,
                                       std::int64_t head_dim = 64,
                                       DataType dtype = DataType::bf16) {
    tool::CheckedProblem problem = square_problem(1, 2, seqlen_q, head_dim, false, dtype);
    problem.problem.seqlen_kv = seqlen_kv;
    problem.repeats = 1;
    return problem;
}

inline tool::CheckedProblem grouped(std::int64_t heads, std::int64_t heads_kv,
                                    std::int64_t seqlen_q, std::int64_t seqlen_kv,
                                    std::int64_t head_dim = 64) {
    tool::CheckedProblem problem = problem_of(seqlen_q, seqlen_kv, head_dim);
    problem.problem.batch = 2;
    problem.problem.heads = heads;
    problem.problem.heads_kv = heads_kv;
    return problem;
}

/// With inputs for which relative errors of all gradients say something: where a query sees one
/// key, dQ and dK are differences of equal numbers.
inline tool::CheckedProblem with_fitting_inputs(tool::CheckedProblem problem) {
    if (problem.problem.seqlen_kv == 1 ||
        (problem.problem.window_left == 0 && problem.problem.window_right == 0)) {
        problem.inputs = verification::InputKind::equal_rows;
    }
    return problem;
}

struct Mask {
    bool causal = false;
    std::optional<std::int64_t> left;
    std::optional<std::int64_t> right;
};

/// Calls require(problem) for every mask in both alignments.
template <typename Require>
void for_each_mask(const tool::CheckedProblem& unmasked, std::span<const Mask> masks,
                   const Require& require) {
    for (const Mask& mask : masks) {
        for (const MaskAlignment alignment :
             {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
            tool::CheckedProblem problem = unmasked;
            problem.problem.causal = mask.causal;
            problem.problem.window_left = mask.left;
            problem.problem.window_right = mask.right;
            problem.problem.mask_alignment = alignment;
            CAPTURE(mask_text(problem.problem));
            require(problem);
        }
    }
}

/// All gradients are zeros where every LSE is infinite, half of them negative. O is told wrongly
/// there, as nobody is to read it.
inline void require_zeros_where_lse_is_infinite(EmulatedSession& session,
                                                const tool::CheckedProblem& checked,
                                                const TileConfig& config) {
    const AttentionProblem& problem = checked.problem;
    tool::ProblemCheck check(session.kernels(), checked);
    const auto rows = static_cast<std::size_t>(problem.heads * problem.seqlen_q);
    const auto columns = static_cast<std::size_t>(problem.effective_head_dim_v());
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr std::uint16_t nan = 0x7fc0;
    std::vector<float> lse(rows, infinity);
    std::fill_n(lse.begin(), rows / 2, -infinity);
    const auto plan = session.runtime().backward(problem, config);
    check.data().set_forward(std::vector<std::uint16_t>(rows * columns, nan), lse);
    check.data().poison();
    check.data().run(*plan);
    session.session().synchronise();
    const tool::Gradients<std::uint16_t> gradients = check.data().gradients();
    const auto is_zero = [](std::uint16_t bits) { return (bits & 0x7fffU) == 0; };
    CHECK(std::ranges::all_of(gradients.d_q, is_zero));
    CHECK(std::ranges::all_of(gradients.d_k, is_zero));
    CHECK(std::ranges::all_of(gradients.d_v, is_zero));
}

}  // namespace backlight::test
