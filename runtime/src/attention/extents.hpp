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

// Packed sequences have no batches: their rows follow each other.

inline Extents extents_of_queries(const AttentionProblem& problem, std::int64_t columns) noexcept {
    return problem.packed ? Extents{1, problem.heads, problem.packed->total_q, columns}
                          : Extents{problem.batch, problem.heads, problem.seqlen_q, columns};
}
inline Extents extents_of_keys(const AttentionProblem& problem, std::int64_t columns) noexcept {
    const std::int64_t heads = problem.effective_heads_kv();
    return problem.packed ? Extents{1, heads, problem.packed->total_kv, columns}
                          : Extents{problem.batch, heads, problem.seqlen_kv, columns};
}

/// Of Q and dQ.
inline Extents query_extents(const AttentionProblem& problem) noexcept {
    return extents_of_queries(problem, problem.head_dim);
}

/// Of K and dK.
inline Extents key_extents(const AttentionProblem& problem) noexcept {
    return extents_of_keys(problem, problem.head_dim);
}

/// Of V and dV.
inline Extents value_extents(const AttentionProblem& problem) noexcept {
    return extents_of_keys(problem, problem.effective_head_dim_v());
}

/// Of O and dO.
inline Extents output_extents(const AttentionProblem& problem) noexcept {
    return extents_of_queries(problem, problem.effective_head_dim_v());
}

}  // namespace backlight::attention
