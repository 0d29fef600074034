#include "verification/packing.hpp"

#include <algorithm>
#include <cstddef>

namespace backlight::verification {

namespace {

std::int32_t narrow(std::int64_t rows) {
    return static_cast<std::int32_t>(rows);
}

std::int64_t used(const std::vector<std::int32_t>& offsets, const std::vector<std::int32_t>& used,
                  std::size_t sequence) {
    return used.empty() ? offsets[sequence + 1] - offsets[sequence] : used[sequence];
}

/// A length of up to `longest`, other ones for every sequence.
std::int64_t mixed_length(std::int64_t longest, std::size_t sequence) {
    switch (sequence % 5) {
        case 0:
            return longest;
        case 1:
            return 0;
        case 2:
            return 1;
        case 3:
            return std::min<std::int64_t>(longest, 65);
        default:
            return longest - longest / 3;
    }
}

}  // namespace

const char* to_string(PackingKind kind) noexcept {
    switch (kind) {
        case PackingKind::full:
            return "full";
        case PackingKind::mixed:
            return "mixed";
        case PackingKind::padded:
            return "padded";
    }
    return "unknown";
}

std::vector<PackedSequence> Packing::sequences() const {
    std::vector<PackedSequence> all;
    for (std::size_t i = 0; i + 1 < cu_seqlens_q.size(); ++i) {
        all.push_back({.q_begin = cu_seqlens_q[i],
                       .kv_begin = cu_seqlens_kv[i],
                       .shape = {.seqlen_q = used(cu_seqlens_q, seqused_q, i),
                                 .seqlen_kv = used(cu_seqlens_kv, seqused_kv, i)}});
    }
    return all;
}

std::vector<SequenceShape> Packing::shapes() const {
    std::vector<SequenceShape> all;
    for (const PackedSequence& sequence : sequences()) {
        all.push_back(sequence.shape);
    }
    return all;
}

Packing make_packing(const AttentionProblem& problem, PackingKind kind) {
    std::vector<SequenceShape> shapes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(problem.batch); ++i) {
        if (kind == PackingKind::full) {
            shapes.push_back({.seqlen_q = problem.seqlen_q, .seqlen_kv = problem.seqlen_kv});
        } else {
            // Of the third, queries have rows where keys have none, and of the second the other way
            // round; the sixth has nothing at all.
            const std::size_t of_keys = i == 1 ? 3 : i == 2 ? 1 : i;
            shapes.push_back({.seqlen_q = mixed_length(problem.seqlen_q, i),
                              .seqlen_kv = mixed_length(problem.seqlen_kv, of_keys)});
        }
    }
    Packing packing = pack(shapes);
    if (kind == PackingKind::padded) {
        std::int64_t before = 2;
        for (std::size_t i = 0; i < shapes.size(); ++i) {
            packing.seqused_q.push_back(narrow(shapes[i].seqlen_q));
            packing.seqused_kv.push_back(narrow(shapes[i].seqlen_kv));
            packing.cu_seqlens_q[i] += narrow(before);
            packing.cu_seqlens_kv[i] += narrow(2 * before);
            before += static_cast<std::int64_t>(i % 3);
        }
        packing.cu_seqlens_q.back() += narrow(before);
        packing.cu_seqlens_kv.back() += narrow(2 * before);
    }
    return packing;
}

Packing pack(std::span<const SequenceShape> shapes) {
    Packing packing{.cu_seqlens_q = {0}, .cu_seqlens_kv = {0}, .seqused_q = {}, .seqused_kv = {}};
    for (const SequenceShape& shape : shapes) {
        packing.cu_seqlens_q.push_back(packing.cu_seqlens_q.back() + narrow(shape.seqlen_q));
        packing.cu_seqlens_kv.push_back(packing.cu_seqlens_kv.back() + narrow(shape.seqlen_kv));
    }
    return packing;
}

Packing even_packing(const AttentionProblem& problem) {
    Packing packing;
    for (std::int64_t i = 0; i <= problem.batch; ++i) {
        packing.cu_seqlens_q.push_back(
            narrow(std::min(i * problem.seqlen_q, problem.packed->total_q)));
        packing.cu_seqlens_kv.push_back(
            narrow(std::min(i * problem.seqlen_kv, problem.packed->total_kv)));
    }
    return packing;
}

AttentionProblem packed_problem(AttentionProblem problem, const Packing& packing,
                                std::int64_t rows_beyond) {
    problem.packed = PackedSequences{.total_q = packing.cu_seqlens_q.back() + rows_beyond,
                                     .total_kv = packing.cu_seqlens_kv.back() + rows_beyond};
    return problem;
}

std::vector<bool> used_rows(const AttentionProblem& problem, const Packing& packing, bool queries) {
    std::vector<bool> rows(
        static_cast<std::size_t>(queries ? problem.packed->total_q : problem.packed->total_kv));
    for (const PackedSequence& sequence : packing.sequences()) {
        std::fill_n(rows.begin() + (queries ? sequence.q_begin : sequence.kv_begin),
                    queries ? sequence.shape.seqlen_q : sequence.shape.seqlen_kv, true);
    }
    return rows;
}

}  // namespace backlight::verification
