#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "backlight/export.h"

namespace backlight {

/// The 16-bit floating-point types that tensors may hold.
enum class DataType { bf16, fp16 };

BACKLIGHT_API const char* to_string(DataType type) noexcept;

/// Which diagonal of the (seqlen_q, seqlen_kv) scores a causal mask and a window are measured from.
/// Both are one where the lengths are equal.
enum class MaskAlignment {
    /// Query i stands at key i: the sequences begin together (PyTorch's `is_causal`).
    top_left,
    /// Query i stands at key i + seqlen_kv − seqlen_q: the sequences end together (FlashAttention,
    /// decoding with a cache of keys).
    bottom_right,
};

BACKLIGHT_API const char* to_string(MaskAlignment alignment) noexcept;

/// In which type dQ, dK and dV are written.
enum class GradientType {
    /// The type of the other tensors.
    input,
    fp32,
};

BACKLIGHT_API const char* to_string(GradientType type) noexcept;

/// Rows of tensors in which sequences lie one after another.
struct PackedSequences {
    /// Of queries: Q, O, dO, dQ and LSE.
    std::int64_t total_q = 0;
    /// Of keys and values: K, V, dK and dV.
    std::int64_t total_kv = 0;

    bool operator==(const PackedSequences&) const = default;
};

/// The lengths of one sequence.
struct SequenceShape {
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_kv = 0;

    bool operator==(const SequenceShape&) const = default;
};

/// One attention backward: shapes in elements, all 64-bit, filled by designated initialisers.
///
///     AttentionProblem{.batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096,
///                      .head_dim = 128, .causal = true}
///
/// Given Q (batch, heads, seqlen_q, head_dim), K (batch, heads_kv, seqlen_kv, head_dim),
/// V (batch, heads_kv, seqlen_kv, head_dim_v), O and the upstream gradient dO (batch, heads,
/// seqlen_q, head_dim_v), and the natural-log row sums LSE (batch, heads, seqlen_q), the backward
/// computes, with S = softmax_scale · Q·Kᵀ, P = exp(S − LSE) where query i attends to key j and 0
/// elsewhere, D = rowsum(dO ∘ O) and dS = P ∘ (dO·Vᵀ − D) (FlashAttention-2, Dao 2023, section
/// 3.1.2):
///
///     dV = Pᵀ·dO,   dQ = softmax_scale · dS·K,   dK = softmax_scale · dSᵀ·Q.
///
/// Query i attends to key j if all that is given of these holds, with position p = i, or
/// i + seqlen_kv − seqlen_q where the alignment is bottom-right:
///
///     causal: j ≤ p,   window_left: j ≥ p − window_left,   window_right: j ≤ p + window_right.
///
/// A query that attends to no key has O = 0 and LSE = −∞, and its dQ is 0. More generally a row
/// whose LSE is −∞ or +∞ has P = 0: it adds nothing to any gradient.
///
/// Query head h uses head h / (heads / heads_kv) of K and V, whose gradients are summed over the
/// heads of the group. Lengths may be 0: what gradients there are then, are 0. (With
/// accumulate_gradients all this is added to what the gradients hold.)
///
/// Packed sequences (`packed`): `batch` sequences of different lengths lie one after another in
/// tensors (heads, total_q, head_dim) and (heads_kv, total_kv, head_dim), where arrays in device
/// memory say (BackwardTensors); masks go by the lengths of each. `seqlen_q` and `seqlen_kv` are
/// then the largest lengths that any has, and the totals the rows of the tensors, all of which may
/// be more than a run needs: one plan serves every packing within them, and one compiled kernel any
/// number of sequences and any totals. Rows that are no sequence's are neither read nor written.
struct AttentionProblem {
    std::int64_t batch = 1;
    /// Of queries.
    std::int64_t heads = 1;
    /// Of keys and values: divides `heads`. As many as `heads` where not given (multi-head
    /// attention); fewer are grouped-query attention, and 1 is multi-query attention.
    std::optional<std::int64_t> heads_kv = std::nullopt;
    std::int64_t seqlen_q = 0;
    std::int64_t seqlen_kv = 0;
    /// Of queries and keys: a multiple of 8 from 8 to 256.
    std::int64_t head_dim = 0;
    /// Of values and outputs, likewise; `head_dim` where not given.
    std::optional<std::int64_t> head_dim_v = std::nullopt;
    /// No query attends to keys after its own position.
    bool causal = false;
    /// Of the causal mask and the window; without meaning where there is neither, or the lengths
    /// are equal.
    MaskAlignment mask_alignment = MaskAlignment::bottom_right;
    /// Sliding window: the keys before and after its own position that a query attends to, besides
    /// the one there. Unbounded where not given; `causal` is a window_right of 0.
    std::optional<std::int64_t> window_left = std::nullopt;
    std::optional<std::int64_t> window_right = std::nullopt;
    DataType dtype = DataType::bf16;
    GradientType gradient_type = GradientType::input;
    /// dQ, dK and dV are added to what the gradients hold when the backward runs, each element once
    /// and rounded as without; only fp32 gradients can be. An empty problem leaves them as they
    /// are.
    bool accumulate_gradients = false;
    /// Multiplies Q·Kᵀ before the softmax; 1/√head_dim where not given. From −1e38 to 1e38, also
    /// zero; other values are refused. Scores are rounded to fp32: gradients are accurate while
    /// 2^-24 · |softmax_scale · q·k|, that rounding, is far below 1. Beyond, P is the exponential
    /// of an error, and gradients may be anything, infinite and NaN as well.
    std::optional<float> softmax_scale = std::nullopt;
    /// Every run on the same inputs gives the same bits, in dQ too. (dK and dV are the same bits
    /// always.)
    bool deterministic = false;
    /// Sequences lie packed; see above.
    std::optional<PackedSequences> packed = std::nullopt;

    bool operator==(const AttentionProblem&) const = default;

    /// What is in force where the field is not given.
    BACKLIGHT_API float effective_softmax_scale() const;
    std::int64_t effective_heads_kv() const noexcept { return heads_kv.value_or(heads); }
    std::int64_t effective_head_dim_v() const noexcept { return head_dim_v.value_or(head_dim); }

    /// A length, or a total, is 0: there are no scores, and every gradient is 0, of packed
    /// sequences in all rows of the tensors.
    bool is_empty() const noexcept {
        return seqlen_q == 0 || seqlen_kv == 0 ||
               (packed && (packed->total_q == 0 || packed->total_kv == 0));
    }

    /// One sequence of packed ones, as a problem of its own.
    BACKLIGHT_API AttentionProblem of_sequence(const SequenceShape& shape) const;
};

/// "batch=8 heads=16 seqlen_q=4096 …": the same text in errors, logs and reports. Fields that came
/// after the first version are named only where they are given.
BACKLIGHT_API std::string to_string(const AttentionProblem& problem);

/// "full", "causal", "causal top_left", "window 1024,0 bottom_right", …: the mask alone. The
/// alignment is told where the lengths differ and it matters.
BACKLIGHT_API std::string mask_text(const AttentionProblem& problem);

/// Hashes field by field (never byte-wise: padding is not content).
struct AttentionProblemHash {
    BACKLIGHT_API std::size_t operator()(const AttentionProblem& problem) const noexcept;
};

/// Pairs of a query and a key that it attends to, in one head: seqlen_q · seqlen_kv without a mask,
/// half of that with the causal mask alone over equal lengths (the convention of FlashAttention's
/// benchmarks, which leaves out half the diagonal), the exact count with any other mask. Of packed
/// sequences, whose lengths only the device knows, those of one of the largest lengths: no sequence
/// has more.
BACKLIGHT_API double attended_pairs(const AttentionProblem& problem) noexcept;

/// Those of one head of all packed sequences together.
BACKLIGHT_API double attended_pairs(const AttentionProblem& problem,
                                    std::span<const SequenceShape> sequences) noexcept;

/// Floating-point operations of the five matrix products of the backward: for each attended pair of
/// each of batch · heads, 6 · head_dim (S, dQ, dK) + 4 · head_dim_v (dP, dV). That is
/// 10·B·H·Nq·Nk·d for equal head dimensions without a mask. A double: large problems pass 2^63 only
/// in theory, but rates are formed from it anyway. Of packed sequences, what they have at most: as
/// if each had the largest lengths.
BACKLIGHT_API double backward_flops(const AttentionProblem& problem) noexcept;

/// Those of packed sequences of these lengths.
BACKLIGHT_API double backward_flops(const AttentionProblem& problem,
                                    std::span<const SequenceShape> sequences) noexcept;

/// Fewest bytes that the backward moves through device memory: Q, K, V, O, dO and LSE read once,
/// dQ, dK, dV written once, and read before where they are added to.
BACKLIGHT_API double backward_bytes(const AttentionProblem& problem) noexcept;

}  // namespace backlight
