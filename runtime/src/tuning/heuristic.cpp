#include <algorithm>
#include <cstdint>

#include "attention/fitted_config.hpp"
#include "attention/tiles.hpp"
#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"

namespace backlight::tuning {

namespace {

/// Measured on an H200: twice to three times as fast as v2 and v3 at every length. The queries of a
/// group of heads, and its part of the dQ accumulator, stay in the L2 cache while the tiles of all
/// its heads run; one head is enough where all its tiles are alike. With the causal mask more heads
/// give more long tiles to begin with, as many as the cache holds. All from one to four are within
/// 4 %. Where several heads of queries use one of keys, a tile has as many times the work, and a
/// block goes through them one after the other: there are fewer tiles to even out the long ones,
/// and of a group's heads the cache holds those that are worked on. Where blocks add to dQ in turn,
/// fewer of the same head are in each other's way; Q, dO and dQ of a group then take 16 MB. A third
/// stage, for which there is room at head dimensions up to 64, gives 1 to 5 %.
TileConfig hopper_wgmma(const AttentionProblem& problem) {
    TileConfig config = kernel_preset("wgmma");
    if (problem.causal && problem.heads != problem.effective_heads_kv()) {
        const std::int64_t heads = 32768 / std::max<std::int64_t>(problem.seqlen_q, 1);
        config.heads_per_group = static_cast<int>(std::clamp<std::int64_t>(heads, 2, 8));
    } else {
        // A narrow window leaves all tiles but a few alike.
        const bool narrow = problem.window_left && *problem.window_left < problem.seqlen_kv / 4;
        config.heads_per_group = problem.causal && !narrow ? (problem.seqlen_q <= 4096 ? 4 : 2) : 1;
    }
    if (problem.deterministic) {
        constexpr std::int64_t group_elements = std::int64_t{1} << 21U;
        const std::int64_t heads = group_elements / std::max<std::int64_t>(problem.seqlen_q, 1) /
                                   std::max<std::int64_t>(attention::tile_head_dim(problem), 1);
        config.heads_per_group = std::max(config.heads_per_group,
                                          static_cast<int>(std::clamp<std::int64_t>(heads, 2, 32)));
    }
    // What packed sequences tell of themselves takes the room of a third.
    config.stages = attention::tile_head_dim(problem) == 64 && !problem.packed ? 3 : 2;
    return config;
}

/// Whatever has no wgmma, and on Hopper the problems that wgmma does not take: on an
/// H200 1.25 to 1.5 times as fast as v3 (docs/mma_resident_kernel.md); on GeForce Blackwell not
/// measured. At head dimensions up to 64 there are registers for query tiles of 64, which halve the
/// exchanges.
/// With the causal mask heads are taken together, so that long tiles run first, as many as fill a
/// third of the 96 MB of L2 cache of a GeForce RTX 5090: Q, dO and dQ in fp32 take 8 bytes an
/// element. Without it all tiles are alike, and one head is enough; but where blocks add to dQ in
/// turn, fewer of the same head are then in each other's way. v5 leaves out what v4 moves
/// through memory before and after its main kernel, which an H200's memory does as fast: there v4
/// is equal at long lengths and up to 4 % faster at N = 512. Head dimensions above 128 have v4's
/// chain alone, in a form of their own.
TileConfig resident(const AttentionProblem& problem, const device::Target& target) {
    const bool wide = attention::has_wide_heads(problem);
    TileConfig config = attention::fitted_config(
        kernel_preset(wide || target.compute_major == 9 ? "v4" : "v5"), problem, target);
    const auto padded = [&](int block_q) {
        return attention::tiles_of(problem.seqlen_q, block_q) * block_q;
    };
    if (!wide && attention::tile_head_dim(problem) == 64 && padded(64) == padded(config.block_q)) {
        config.block_q = 64;
    }
    config.heads_per_group = 1;
    if (problem.causal || problem.deterministic) {
        constexpr std::int64_t group_elements = (std::int64_t{32} << 20U) / 8;
        constexpr std::int64_t most_heads = 64;
        // One after the other: a problem that is refused later may have any numbers.
        const auto at_least_one = [](std::int64_t number) {
            return std::max<std::int64_t>(number, 1);
        };
        const std::int64_t heads =
            group_elements / at_least_one(problem.seqlen_q) /
            at_least_one(problem.heads / at_least_one(problem.effective_heads_kv())) /
            at_least_one(
                std::max(attention::tile_head_dim(problem), attention::tile_head_dim_v(problem)));
        config.heads_per_group = static_cast<int>(std::clamp<std::int64_t>(heads, 1, most_heads));
    }
    return config;
}

}  // namespace

TileConfig heuristic(const AttentionProblem& problem, const device::Target& target) {
    if (problem.is_empty()) {
        return kernel_preset("v3");  // None of its kernels is needed.
    }
    if (const TileConfig wgmma = hopper_wgmma(problem); is_legal(wgmma, problem, target)) {
        return wgmma;
    }
    // What this does not take either is refused by name.
    return resident(problem, target);
}

}  // namespace backlight::tuning
