#include "backlight/problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>

namespace backlight {

const char* to_string(DataType type) noexcept {
    switch (type) {
        case DataType::bf16:
            return "bf16";
        case DataType::fp16:
            return "fp16";
    }
    return "unknown";
}

float AttentionProblem::effective_softmax_scale() const {
    return softmax_scale.value_or(1.0F / std::sqrt(static_cast<float>(head_dim)));
}

std::string to_string(const AttentionProblem& problem) {
    return fmt::format(
        "batch={} heads={} seqlen_q={} seqlen_kv={} head_dim={} causal={} dtype={} "
        "softmax_scale={}",
        problem.batch, problem.heads, problem.seqlen_q, problem.seqlen_kv, problem.head_dim,
        problem.causal, to_string(problem.dtype),
        problem.softmax_scale ? fmt::format("{}", *problem.softmax_scale) : "default");
}

std::size_t AttentionProblemHash::operator()(const AttentionProblem& problem) const noexcept {
    std::size_t hash = 0;
    const auto mix = [&hash](auto value) {
        hash ^=
            std::hash<decltype(value)>{}(value) + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
    };
    mix(problem.batch);
    mix(problem.heads);
    mix(problem.seqlen_q);
    mix(problem.seqlen_kv);
    mix(problem.head_dim);
    mix(problem.causal);
    mix(static_cast<int>(problem.dtype));
    mix(problem.softmax_scale.has_value());
    mix(problem.softmax_scale.value_or(0.0F));
    return hash;
}

double backward_flops(const AttentionProblem& problem) noexcept {
    const double pairs =
        static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_kv);
    return 10.0 * static_cast<double>(problem.batch) * static_cast<double>(problem.heads) * pairs *
           static_cast<double>(problem.head_dim) * (problem.causal ? 0.5 : 1.0);
}

double backward_bytes(const AttentionProblem& problem) noexcept {
    const double heads = static_cast<double>(problem.batch) * static_cast<double>(problem.heads);
    const double q_elements =
        heads * static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.head_dim);
    const double kv_elements =
        heads * static_cast<double>(problem.seqlen_kv) * static_cast<double>(problem.head_dim);
    const double lse_bytes = heads * static_cast<double>(problem.seqlen_q) * 4.0;
    // Q, O, dO, dQ; K, V, dK, dV.
    return 2.0 * (4.0 * q_elements + 4.0 * kv_elements) + lse_bytes;
}

}  // namespace backlight
