#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace backlight {

/// The 16-bit floating-point types that tensors may hold.
enum class DataType { bf16, fp16 };

const char* to_string(DataType type) noexcept;

/// One attention backward: shapes in elements, all 64-bit, filled by designated initialisers.
///
///     AttentionProblem{.batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096,
///                      .head_dim = 128, .causal = true}
///
/// Given Q, K, V, O of shape (batch, heads, seqlen, head_dim), the natural-log row sums LSE of
/// shape (batch, heads, seqlen_q) and the upstream gradient dO, the backward computes, with
/// S = softmax_scale · Q·Kᵀ (masked), P = exp(S − LSE), D = rowsum(dO ∘ O) and
/// dS = P ∘ (dO·Vᵀ − D) (FlashAttention-2, Dao 2023, section 3.1.2):
///
///     dV = Pᵀ·dO,   dQ = softmax_scale · dS·K,   dK = softmax_scale · dSᵀ·Q.
struct AttentionProblem {
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_kv = 0;
    std::int64_t head_dim = 0;
    /// Query i attends to keys 0 … i. Needs seqlen_q == seqlen_kv.
    bool causal = false;
    DataType dtype = DataType::bf16;
    /// Multiplies Q·Kᵀ before the softmax; 1/√head_dim where not given. Any finite
    /// value up to 1e38, also zero and negative.
    std::optional<float> softmax_scale = std::nullopt;

    bool operator==(const AttentionProblem&) const = default;

    /// The scale in force: `softmax_scale`, or 1/√head_dim.
    float effective_softmax_scale() const;
};

/// "batch=8 heads=16 seqlen_q=4096 …": the same text in errors, logs and reports.
std::string to_string(const AttentionProblem& problem);

/// Hashes field by field (never byte-wise: padding is not content).
struct AttentionProblemHash {
    std::size_t operator()(const AttentionProblem& problem) const noexcept;
};

/// Floating-point operations of the five matrix products of the backward: 10·B·H·Nq·Nk·d, half of
/// it when causal (the convention of FlashAttention's benchmarks). A double: large problems pass
/// 2^63 only in theory, but rates are formed from it anyway.
double backward_flops(const AttentionProblem& problem) noexcept;

/// Fewest bytes that the backward moves through device memory: Q, K, V, O, dO and LSE read once,
/// dQ, dK, dV written once.
double backward_bytes(const AttentionProblem& problem) noexcept;

}  // namespace backlight
