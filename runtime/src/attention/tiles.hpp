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

/// Columns of the tiles, and of the accumulator of dQ: panels of 64, as many as the wider of Q and
/// V needs.
inline std::int64_t tile_head_dim(const AttentionProblem& problem) noexcept {
    return tiles_of(std::max(problem.head_dim, problem.effective_head_dim_v()), 64) * 64;
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
