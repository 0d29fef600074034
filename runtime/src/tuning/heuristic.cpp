#include <algorithm>
#include <array>
#include <cstdint>

#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"

namespace backlight::tuning {

namespace {

/// Measured on an H200: twice to three times as fast as v2 and v3 at every length. The queries of a
/// group of heads, and its part of the dQ accumulator, stay in the L2 cache while the tiles of all
/// its heads run; one head is enough where all its tiles are alike. With the causal mask more heads
/// give more long tiles to begin with, as many as the cache holds. All from one to four are within
/// 4 %. A third stage, for which there is room at head_dim 64, gives 1 to 5 %.
TileConfig hopper_wgmma(const AttentionProblem& problem) {
    TileConfig config = kernel_preset("wgmma");
    config.heads_per_group = problem.causal ? (problem.seqlen_q <= 4096 ? 4 : 2) : 1;
    config.stages = problem.head_dim == 64 ? 3 : 2;
    return config;
}

/// Measured on an H200 (docs/measurements/h200_bench.json). At head_dim 128 either fills a
/// multiprocessor with one block of eight warps, and v2's taller query tile halves the barriers an
/// operation: equal to v3 with the causal mask, 2 to 4 % faster without. At head_dim 64 v3 takes
/// 128 registers a thread and 41 KB, so that two blocks fit, and is 16 to 18 % faster.
const TileConfig& hopper(std::int64_t head_dim) {
    return kernel_preset(head_dim > 64 ? "v2" : "v3");
}

/// GeForce Blackwell and whatever else has no wgmma, not measured there. On an H200 slowed to the
/// tensor rate of a GeForce RTX 5090 it leaves half as many clocks idle as v3. At head_dim 64 there
/// are registers for query tiles of 64, which halve the exchanges. With the causal mask heads are
/// taken together, so that long tiles run first, as many as fill a third of that card's 96 MB of L2
/// cache: Q, dO and dQ in fp32 take 8 bytes an element. Without it all tiles are alike, and one
/// head is enough.
TileConfig resident(const AttentionProblem& problem) {
    TileConfig config = kernel_preset("v4");
    if (problem.head_dim == 64 && problem.seqlen_q % 64 == 0) {
        config.block_q = 64;
    }
    config.heads_per_group = 1;
    if (problem.causal) {
        constexpr std::int64_t group_bytes = std::int64_t{32} << 20U;
        constexpr std::int64_t most_heads = 64;
        const std::int64_t heads = group_bytes / (8 * problem.seqlen_q * problem.head_dim);
        config.heads_per_group = static_cast<int>(std::clamp<std::int64_t>(heads, 1, most_heads));
    }
    return config;
}

/// For lengths that the presets' tiles of 64 do not divide: the largest tiles that may.
constexpr std::array small_tiles = {
    TileConfig{.block_q = 16, .block_kv = 64, .warps = 4, .stages = 2},
    TileConfig{.block_q = 32, .block_kv = 32, .warps = 4, .stages = 2},
};

}  // namespace

TileConfig heuristic(const AttentionProblem& problem, const device::Target& target) {
    if (problem.is_empty()) {
        return kernel_preset("v3");  // None of its kernels is needed.
    }
    if (const TileConfig wgmma = hopper_wgmma(problem); is_legal(wgmma, problem, target)) {
        return wgmma;
    }
    const TileConfig first =
        target.compute_major == 9 ? hopper(problem.head_dim) : resident(problem);
    if (is_legal(first, problem, target)) {
        return first;
    }
    const TileConfig& second = kernel_preset("v3");
    if (is_legal(second, problem, target)) {
        return second;
    }
    for (const TileConfig& tiles : small_tiles) {
        if (is_legal(tiles, problem, target)) {
            return tiles;
        }
    }
    // To be refused by name.
    return second;
}

}  // namespace backlight::tuning
