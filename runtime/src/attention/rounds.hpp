#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/tiles.hpp"
#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::attention {

/// Whether the blocks of the main kernel convert dQ, and its accumulator is a ring of places.
constexpr bool converts_d_q(const TileConfig& config) noexcept {
    return config.family == KernelFamily::wgmma || config.converts_d_q;
}

/// Whether the main kernel's blocks draw what they work on from a counter, since they wait for each
/// other.
constexpr bool takes_tickets(const AttentionProblem& problem, const TileConfig& config) noexcept {
    return converts_d_q(config) || problem.deterministic;
}

/// How the tickets of a kernel that takes heads (of keys and values) in groups are made of rounds:
/// see Work in attention_backward_rounds/work.cuh. The problem and the configuration are valid.
struct Rounds {
    std::int64_t group_heads;  // for wgmma a constant of the kernel, else no more than there are
    std::int64_t tickets_a_round;  // key tiles of a group of heads
    std::int64_t groups;
    std::int64_t resident_blocks;
    /// Groups between a head's key tiles and the conversion of its dQ. When a group's last tile is
    /// begun, as many others are under way as there are blocks: that many tickets later it is done;
    /// twice as many where the longest tiles begin last.
    std::int64_t conversion_lag = 0;
    /// Heads whose dQ the accumulator holds at a time. A place is needed from its head's first
    /// ticket to its conversion; twice as many tickets again as there are blocks keep anyone from
    /// waiting for that (as many again do not: the long tiles of a causal mask take twice as long
    /// as the mean one), and more than that would only leave the L2 cache.
    std::int64_t accumulator_heads;

    Rounds(const AttentionProblem& problem, const TileConfig& config) noexcept
        : resident_blocks(most_resident_blocks(problem, config)) {
        const std::int64_t heads = problem.batch * problem.effective_heads_kv();
        group_heads = config.family == KernelFamily::wgmma
                          ? config.heads_per_group
                          : std::min<std::int64_t>(config.heads_per_group, heads);
        tickets_a_round = group_heads * kv_tiles(problem, config);
        groups = ceiling_quotient(heads, group_heads);
        accumulator_heads = heads;
        if (problem.packed) {
            set_packed(problem, config);
            return;
        }
        if (converts_d_q(config)) {
            const std::int64_t under_way = (problem.deterministic ? 2 : 1) * resident_blocks;
            conversion_lag = 1 + ceiling_quotient(under_way, tickets_a_round);
            const std::int64_t accumulator_groups =
                conversion_lag + 1 + ceiling_quotient(2 * resident_blocks, tickets_a_round);
            accumulator_heads = std::min(accumulator_groups * group_heads, heads);
        }
    }

    std::int64_t tickets() const noexcept {
        return packed_tickets > 0 ? packed_tickets : (groups + conversion_lag) * tickets_a_round;
    }

    /// Of packed sequences, which have no rounds: as many as any packing needs; see
    /// attention_backward_packing/work.cuh. Their lag is in tickets, to which kernels add those of
    /// a group of heads of the longest sequence, and the accumulator holds the dQ of all heads.
    std::int64_t packed_tickets = 0;

  private:
    void set_packed(const AttentionProblem& problem, const TileConfig& config) noexcept {
        const std::int64_t heads = problem.effective_heads_kv();
        group_heads = std::min(group_heads, heads);
        accumulator_heads = heads;
        packed_tickets = heads * packed_kv_tiles(problem, config);
        if (converts_d_q(config)) {
            conversion_lag = (problem.deterministic ? 2 : 1) * resident_blocks;
            const std::int64_t longest = std::max<std::int64_t>(kv_tiles(problem, config), 1);
            packed_tickets += group_heads * longest + conversion_lag;
        }
    }

    /// Of any card of the kernel's kind. More of them would only wait more.
    static std::int64_t most_resident_blocks(const AttentionProblem& problem,
                                             const TileConfig& config) noexcept {
        // One a multiprocessor, and no Hopper card has more than 132.
        if (config.family == KernelFamily::wgmma) {
            return 132;
        }
        // One of wide heads, else two or three, and no card with 100 KiB of shared memory has more
        // than 188.
        constexpr std::int64_t most_multiprocessors = 188;
        const bool small = tile_head_dim(problem) == 64 && config.block_q == 32;
        const std::int64_t blocks = has_wide_heads(problem) ? 1 : small ? 3 : 2;
        return most_multiprocessors * blocks;
    }
};

}  // namespace backlight::attention
