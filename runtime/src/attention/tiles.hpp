#pragma once

#include <algorithm>
#include <cstdint>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::attention {

/// value / unit, rounded up.
constexpr std::int64_t ceiling_quotient(std::int64_t value, std::int64_t unit) noexcept {
    return (value + unit - 1) / unit;
}

// Lengths in tiles, of which the last may be partial. The problem and the configuration are valid.

constexpr std::int64_t tiles_of(std::int64_t length, int rows) noexcept {
    return ceiling_quotient(length, rows);
}
constexpr std::int64_t query_tiles(const AttentionProblem& problem,
                                   const TileConfig& config) noexcept {
    return tiles_of(problem.seqlen_q, config.block_q);
}
constexpr std::int64_t kv_tiles(const AttentionProblem& problem,
                                const TileConfig& config) noexcept {
    return tiles_of(problem.seqlen_kv, config.block_kv);
}

/// Columns, padded to panels of 64.
constexpr std::int64_t padded_to_panels(std::int64_t columns) noexcept {
    return tiles_of(columns, 64) * 64;
}

/// Whether heads are wider than 128, for which mma_resident has a form of its own
/// (attention_backward_mma_resident_wide.cu).
inline bool has_wide_heads(const AttentionProblem& problem) noexcept {
    return std::max(problem.head_dim, problem.effective_head_dim_v()) > 128;
}

/// Columns of the tiles of Q and K, and of the accumulator of dQ: as many panels as the wider of Q
/// and V needs, or Q where heads are wide.
inline std::int64_t tile_head_dim(const AttentionProblem& problem) noexcept {
    return padded_to_panels(has_wide_heads(problem)
                                ? problem.head_dim
                                : std::max(problem.head_dim, problem.effective_head_dim_v()));
}
/// Columns of the tiles of V and O.
inline std::int64_t tile_head_dim_v(const AttentionProblem& problem) noexcept {
    return has_wide_heads(problem) ? padded_to_panels(problem.effective_head_dim_v())
                                   : tile_head_dim(problem);
}

/// Rows that a head of queries has in the workspace: those of whole query tiles. Each packed
/// sequence has up to a tile more than its own; that a head has the rows of all of them.
constexpr std::int64_t padded_seqlen_q(const AttentionProblem& problem,
                                       const TileConfig& config) noexcept {
    return problem.packed ? (tiles_of(problem.packed->total_q, config.block_q) + problem.batch) *
                                config.block_q
                          : query_tiles(problem, config) * config.block_q;
}

/// Heads that have so many rows: of all batches, or where sequences are packed of all of them
/// together.
constexpr std::int64_t workspace_heads(const AttentionProblem& problem) noexcept {
    return (problem.packed ? 1 : problem.batch) * problem.heads;
}

// Packed sequences: how many blocks find all rows, and tiles of keys of a head, in any packing.
// Rounding each down leaves one a sequence.

constexpr std::int64_t packed_row_blocks(const AttentionProblem& problem, int rows) noexcept {
    return problem.packed->total_q / rows + problem.batch;
}
constexpr std::int64_t packed_kv_tiles(const AttentionProblem& problem,
                                       const TileConfig& config) noexcept {
    return std::min(problem.packed->total_kv / config.block_kv + problem.batch,
                    problem.batch * std::max<std::int64_t>(kv_tiles(problem, config), 1));
}

}  // namespace backlight::attention
