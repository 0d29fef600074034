#pragma once

#include <doctest/doctest.h>

#include <string>

#include "backlight/tile_config.hpp"
#include "problem_check.hpp"

namespace backlight::test {

/// A problem of N(0, 1) inputs with equal lengths.
inline tool::CheckedProblem square_problem(std::int64_t batch, std::int64_t heads,
                                           std::int64_t seqlen, std::int64_t head_dim, bool causal,
                                           DataType dtype = DataType::bf16) {
    tool::CheckedProblem problem;
    problem.problem.batch = batch;
    problem.problem.heads = heads;
    problem.problem.seqlen_q = seqlen;
    problem.problem.seqlen_kv = seqlen;
    problem.problem.head_dim = head_dim;
    problem.problem.causal = causal;
    problem.problem.dtype = dtype;
    return problem;
}

/// Fails the test with every failure of the report.
inline void require_passed(const tool::ProblemReport& report) {
    CHECK_MESSAGE(report.tensors.size() == 3, "three gradients are reported");
    for (const std::string& failure : report.failures) {
        FAIL_CHECK(report.kernel << " " << tool::to_string(report.problem) << ": " << failure);
    }
}

}  // namespace backlight::test
