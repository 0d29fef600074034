#pragma once

#include <algorithm>
#include <cstdint>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::attention {

/// How the wgmma kernel's tickets are made of rounds: see Work in
/// attention_backward_wgmma/work.cuh. The problem and the configuration are valid.
struct WgmmaRounds {
    /// One block a multiprocessor, and no Hopper card has more of them.
    static constexpr std::int64_t most_resident_blocks = 132;

    std::int64_t tickets_a_round;  // key tiles of a group of heads
    std::int64_t groups;
    /// Groups between a head's key tiles and the conversion of its dQ. When a group's last tile is
    /// begun, as many others are under way as there are blocks: that many tickets later it is done.
    std::int64_t conversion_lag;
    /// Heads whose dQ the accumulator holds at a time. A place is needed from its head's first
    /// ticket to its conversion; twice as many tickets again as there are blocks keep anyone from
    /// waiting for that, and more than that would only leave the L2 cache.
    std::int64_t accumulator_heads;

    WgmmaRounds(const AttentionProblem& problem, const TileConfig& config) noexcept {
        const auto ceiling = [](std::int64_t value, std::int64_t unit) {
            return (value + unit - 1) / unit;
        };
        const std::int64_t heads = problem.batch * problem.heads;
        tickets_a_round = config.heads_per_group * (problem.seqlen_kv / config.block_kv);
        groups = ceiling(heads, config.heads_per_group);
        conversion_lag = 1 + ceiling(most_resident_blocks, tickets_a_round);
        const std::int64_t accumulator_groups =
            conversion_lag + 1 + ceiling(2 * most_resident_blocks, tickets_a_round);
        accumulator_heads = std::min(accumulator_groups * config.heads_per_group, heads);
    }

    std::int64_t tickets() const noexcept { return (groups + conversion_lag) * tickets_a_round; }
    /// Blocks take tickets until there are none left.
    std::int64_t blocks() const noexcept { return std::min(most_resident_blocks, tickets()); }
};

}  // namespace backlight::attention
