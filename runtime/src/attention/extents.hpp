#pragma once

#include <cstdint>

#include "backlight/problem.hpp"

namespace backlight::attention {

/// Of a tensor (batch, heads, seqlen, head_dim).
struct Extents {
    std::int64_t batch = 0;
    std::int64_t heads = 0;
    std::int64_t seqlen = 0;
    std::int64_t head_dim = 0;

    bool operator==(const Extents&) const = default;

    std::int64_t rows() const noexcept { return batch * heads * seqlen; }
    std::int64_t elements() const noexcept { return rows() * head_dim; }
};

/// Of Q and dQ.
inline Extents query_extents(const AttentionProblem& problem) noexcept {
    return {problem.batch, problem.heads, problem.seqlen_q, problem.head_dim};
}

/// Of K and dK.
inline Extents key_extents(const AttentionProblem& problem) noexcept {
    return {problem.batch, problem.effective_heads_kv(), problem.seqlen_kv, problem.head_dim};
}

/// Of V and dV.
inline Extents value_extents(const AttentionProblem& problem) noexcept {
    return {problem.batch, problem.effective_heads_kv(), problem.seqlen_kv,
            problem.effective_head_dim_v()};
}

/// Of O and dO.
inline Extents output_extents(const AttentionProblem& problem) noexcept {
    return {problem.batch, problem.heads, problem.seqlen_q, problem.effective_head_dim_v()};
}

}  // namespace backlight::attention
