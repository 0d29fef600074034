// The fp32 reference kernels beside the fp64 reference of the host: on any device.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "half_types.hpp"
#include "problem_data.hpp"
#include "support_kernels.hpp"
#include "verification/accuracy.hpp"
#include "verification/host_reference.hpp"

namespace backlight::test {

/// 0 where there is nothing to compare.
inline double relative_l2(const std::vector<float>& actual, const std::vector<double>& expected) {
    if (actual.empty() && expected.empty()) {
        return 0;
    }
    return verification::measure_accuracy(actual, std::span<const double>(expected),
                                          {.batch = 1,
                                           .heads = 1,
                                           .rows = 1,
                                           .columns = static_cast<std::int64_t>(actual.size())},
                                          {})
        .relative_l2;
}

/// The forward and the backward of the fp32 kernels, from N(0, 1) inputs.
inline void compare_with_host(tool::SupportKernels& kernels, const AttentionProblem& problem) {
    using Operand = tool::ProblemData::Operand;
    const std::string text = to_string(problem);
    CAPTURE(text);
    tool::ProblemData data(kernels, problem);
    data.randomise(11);
    const auto values = [&](Operand operand) {
        const std::vector<std::byte> bytes = data.download(operand);
        std::vector<std::uint16_t> bits(bytes.size() / sizeof(std::uint16_t));
        std::memcpy(bits.data(), bytes.data(), bytes.size());
        return widen<double>(problem.dtype, bits);
    };
    const std::vector<double> q = values(Operand::q);
    const std::vector<double> k = values(Operand::k);
    const std::vector<double> v = values(Operand::v);
    const std::vector<double> o = values(Operand::o);
    const std::vector<double> d_o = values(Operand::d_o);
    std::vector<float> lse = data.download_lse();

    std::vector<double> exact_o(o.size());
    std::vector<double> exact_lse(lse.size());
    verification::reference_forward(
        {.problem = problem, .q = q, .k = k, .v = v, .o = exact_o, .lse = exact_lse});
    const std::vector<double> lse_given(lse.begin(), lse.end());
    for (std::size_t i = 0; i < lse.size(); ++i) {
        CHECK(std::isinf(lse[i]) == std::isinf(exact_lse[i]));
        if (exact_lse[i] == -std::numeric_limits<double>::infinity()) {
            CHECK(lse[i] == -std::numeric_limits<float>::infinity());
            lse[i] = 0;
            exact_lse[i] = 0;
        }
    }
    CHECK(relative_l2(lse, exact_lse) < 1e-6);
    // O was rounded to the type: each element is within half a unit in the last place.
    CHECK(relative_l2(std::vector<float>(o.begin(), o.end()), exact_o) <
          (problem.dtype == DataType::bf16 ? 3e-3 : 4e-4));

    std::vector<double> d_q(q.size());
    std::vector<double> d_k(k.size());
    std::vector<double> d_v(v.size());
    verification::reference_backward({.problem = problem,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .o = o,
                                      .lse = lse_given,
                                      .d_o = d_o,
                                      .d_q = d_q,
                                      .d_k = d_k,
                                      .d_v = d_v});
    const tool::Gradients<float> gradients = data.reference_gradients();
    CHECK(relative_l2(gradients.d_q, d_q) < 1e-5);
    CHECK(relative_l2(gradients.d_k, d_k) < 1e-5);
    CHECK(relative_l2(gradients.d_v, d_v) < 1e-5);
    CHECK_FALSE(data.damaged_canary().has_value());
}

/// Problems that between them have every feature the reference knows, each beside several others:
/// lengths of no whole tile and 0, every kind of mask over lengths that differ in both directions,
/// groups of heads, head dimensions on both sides of the one from which tiles are half as tall.
inline std::vector<AttentionProblem> general_problems() {
    constexpr auto top_left = MaskAlignment::top_left;
    return {
        {.batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 45, .seqlen_kv = 77, .head_dim = 40},
        {.heads = 3,
         .heads_kv = 1,
         .seqlen_q = 33,
         .seqlen_kv = 70,
         .head_dim = 64,
         .head_dim_v = 24,
         .causal = true},
        {.heads = 2, .seqlen_q = 70, .seqlen_kv = 33, .head_dim = 64, .causal = true},
        {.heads = 2,
         .seqlen_q = 70,
         .seqlen_kv = 33,
         .head_dim = 8,
         .causal = true,
         .mask_alignment = top_left},
        {.batch = 2,
         .heads = 2,
         .heads_kv = 1,
         .seqlen_q = 100,
         .seqlen_kv = 100,
         .head_dim = 16,
         .causal = true,
         .window_left = 20},
        {.heads = 2,
         .seqlen_q = 80,
         .seqlen_kv = 130,
         .head_dim = 32,
         .mask_alignment = top_left,
         .window_left = 3,
         .window_right = 35},
        {.seqlen_q = 130,
         .seqlen_kv = 50,
         .head_dim = 32,
         .window_left = 40,
         .window_right = 0,
         .dtype = DataType::fp16},
        {.seqlen_q = 40,
         .seqlen_kv = 90,
         .head_dim = 24,
         .window_right = 10,
         .softmax_scale = -0.2F},
        {.heads = 2,
         .heads_kv = 1,
         .seqlen_q = 37,
         .seqlen_kv = 50,
         .head_dim = 192,
         .head_dim_v = 128,
         .causal = true},
        {.seqlen_q = 50, .seqlen_kv = 35, .head_dim = 256, .window_left = 5},
        {.seqlen_q = 20,
         .seqlen_kv = 20,
         .head_dim = 72,
         .head_dim_v = 136,
         .dtype = DataType::fp16},
        {.heads = 2, .seqlen_q = 1, .seqlen_kv = 1, .head_dim = 8, .causal = true},
        {.heads = 2, .heads_kv = 1, .seqlen_q = 0, .seqlen_kv = 40, .head_dim = 64},
        {.heads = 2, .seqlen_q = 40, .seqlen_kv = 0, .head_dim = 64, .causal = true},
    };
}

}  // namespace backlight::test
