#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backlight/problem.hpp"

namespace backlight::verification {

/// Where a sequence lies in packed tensors.
struct PackedSequence {
    std::int64_t q_begin = 0;
    std::int64_t kv_begin = 0;
    SequenceShape shape;
};

/// What the arrays of BackwardTensors say.
struct Packing {
    std::vector<std::int32_t> cu_seqlens_q, cu_seqlens_kv;
    /// Empty: all rows are used.
    std::vector<std::int32_t> seqused_q, seqused_kv;

    bool operator==(const Packing&) const = default;

    /// None is given.
    bool is_empty() const noexcept { return cu_seqlens_q.empty(); }

    std::vector<PackedSequence> sequences() const;
    std::vector<SequenceShape> shapes() const;
};

/// How lengths of sequences are drawn.
enum class PackingKind {
    /// Each is as long as any may be.
    full,
    /// The first is; of the others some are empty, or have one row, or only queries, or only keys.
    mixed,
    /// The same, with rows between the sequences that are none's.
    padded,
};

inline constexpr std::array packing_kinds = {PackingKind::full, PackingKind::mixed,
                                             PackingKind::padded};

const char* to_string(PackingKind kind) noexcept;

/// So many sequences as the problem has in its batch, of lengths up to its seqlen_q and seqlen_kv.
/// Always the same for the same arguments.
Packing make_packing(const AttentionProblem& problem, PackingKind kind);

/// Sequences of these lengths, one behind the other.
Packing pack(std::span<const SequenceShape> shapes);

/// Of a packed problem of which no arrays are given: sequences of the largest lengths, as far as
/// the totals go.
Packing even_packing(const AttentionProblem& problem);

/// The problem with these sequences packed in as many rows as they need, and no more; `padded` ones
/// have some beyond the last.
AttentionProblem packed_problem(AttentionProblem problem, const Packing& packing,
                                std::int64_t rows_beyond = 0);

/// For each row of a tensor of queries, or of keys, whether it is some sequence's.
std::vector<bool> used_rows(const AttentionProblem& problem, const Packing& packing, bool queries);

}  // namespace backlight::verification
