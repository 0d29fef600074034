#include "tuning/search_space.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "attention/family_support.hpp"
#include "attention/fitted_config.hpp"
#include "attention/tiles.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"

namespace backlight::tuning {

namespace {

// The documented ranges of TileConfig for mma.
constexpr int most_block_q = 256;
constexpr int most_block_kv = 256;
constexpr int most_warps = 32;
constexpr int most_stages = 8;

/// The number of the preset, or the number of presets.
std::size_t preset_rank(const TileConfig& config) {
    const auto presets = kernel_presets();
    const auto found = std::ranges::find(presets, config, &KernelPreset::config);
    return static_cast<std::size_t>(found - presets.begin());
}

/// Faster families first.
int family_rank(KernelFamily family) {
    switch (family) {
        case KernelFamily::wgmma:
            return 0;
        case KernelFamily::mma_resident:
            return 1;
        default:
            return 2;
    }
}

auto order_of(const TileConfig& config) {
    constexpr int usual_stages = 3;
    constexpr int usual_warps = 8;
    const bool usual_launch = config.sequence_lengths == SequenceLengths::run_time &&
                              config.programmatic_dependent_launch;
    return std::tuple(
        preset_rank(config), !usual_launch, family_rank(config.family),
        std::max(config.stages - usual_stages, 0),
        std::abs(std::log2(static_cast<double>(std::max(config.warps, 1)) / usual_warps)),
        config.stages, config.block_q, config.block_kv, config.warps,
        static_cast<int>(config.sequence_lengths), !config.programmatic_dependent_launch,
        static_cast<int>(config.family), config.heads_per_group, !config.converts_d_q);
}

}  // namespace

bool is_legal(const TileConfig& config, const AttentionProblem& problem,
              const device::Target& target) {
    try {
        attention::validate(problem);
        attention::validate(config, problem, target);
        return true;
    } catch (const Error&) {
        return false;
    }
}

std::optional<KernelFamily> kernel_family(std::string_view name) {
    if (name.empty()) {
        return std::nullopt;
    }
    std::vector<std::string_view> names;
    for (const KernelFamily family : kernel_families()) {
        if (name == to_string(family)) {
            return family;
        }
        names.emplace_back(to_string(family));
    }
    throw Error(ErrorCode::unsupported,
                fmt::format("kernel_family is '{}': this build has the families {}", name,
                            fmt::join(names, ", ")));
}

namespace {

void add_mma_tiles(const AttentionProblem& problem, const device::Target& target,
                   std::vector<TileConfig>& tiles) {
    TileConfig config;
    for (config.block_q = 16; config.block_q <= most_block_q; config.block_q += 16) {
        for (config.block_kv = 32; config.block_kv <= most_block_kv; config.block_kv += 32) {
            // Other numbers of warps do not share the row groups evenly; to ask costs an exception.
            const int step = std::lcm(config.block_q / 16, config.block_kv / 16);
            for (config.warps = step; config.warps <= most_warps; config.warps += step) {
                for (config.stages = 1; config.stages <= most_stages; ++config.stages) {
                    if (!is_legal(config, problem, target)) {
                        break;  // More stages only need more shared memory.
                    }
                    tiles.push_back(config);
                }
            }
        }
    }
}

/// Tiles are of one size; what differs is how far loads run ahead (beyond four stages there is
/// nothing left to hide) and in which order the heads are taken.
void add_wgmma_tiles(const AttentionProblem& problem, const device::Target& target,
                     std::vector<TileConfig>& tiles) {
    constexpr int deepest = 4;
    TileConfig config = kernel_preset("wgmma");
    for (config.stages = 2; config.stages <= deepest; ++config.stages) {
        for (const int heads : {1, 2, 4, 8, 16}) {
            config.heads_per_group = heads;
            if (!is_legal(config, problem, target)) {
                break;  // The order of the heads makes nothing legal.
            }
            tiles.push_back(config);
        }
    }
}

/// Tall query tiles halve the exchanges where they fit; the rest is the order of the heads.
void add_mma_resident_tiles(const AttentionProblem& problem, const device::Target& target,
                            std::vector<TileConfig>& tiles) {
    TileConfig config = kernel_preset("v4");
    if (attention::has_wide_heads(problem)) {
        config.warps = attention::wide_warps;
        for (config.stages = 1; config.stages <= 2; ++config.stages) {
            for (config.heads_per_group = 1; config.heads_per_group <= 32;
                 config.heads_per_group *= 2) {
                if (is_legal(config, problem, target)) {
                    tiles.push_back(config);
                }
            }
        }
        return;
    }
    for (config.block_q = 32; config.block_q <= 64; config.block_q += 32) {
        for (const int heads : {1, 2, 4, 8, 16, 32}) {
            config.heads_per_group = heads;
            if (!is_legal(config, problem, target)) {
                break;  // The order of the heads makes nothing legal.
            }
            for (const bool converts : {true, false}) {
                config.converts_d_q = converts;
                tiles.push_back(config);
            }
        }
    }
}

}  // namespace

std::vector<TileConfig> legal_tiles(const AttentionProblem& problem, const device::Target& target,
                                    std::optional<KernelFamily> family) {
    attention::validate(problem);
    attention::require_any_family(
        problem, family ? std::span<const KernelFamily>(&*family, 1) : kernel_families());
    std::vector<TileConfig> tiles;
    const auto wanted = [&](KernelFamily one) { return !family || *family == one; };
    if (wanted(KernelFamily::mma)) {
        add_mma_tiles(problem, target, tiles);
    }
    if (wanted(KernelFamily::wgmma)) {
        add_wgmma_tiles(problem, target, tiles);
    }
    if (wanted(KernelFamily::mma_resident)) {
        add_mma_resident_tiles(problem, target, tiles);
    }
    std::ranges::sort(tiles, comes_before);
    return tiles;
}

std::vector<TileConfig> launch_variants(const TileConfig& config) {
    std::vector<TileConfig> variants;
    for (const SequenceLengths lengths :
         {SequenceLengths::run_time, SequenceLengths::compile_time}) {
        for (const bool early : {true, false}) {
            TileConfig variant = config;
            variant.sequence_lengths = lengths;
            variant.programmatic_dependent_launch = early;
            if (variant != config) {
                variants.push_back(variant);
            }
        }
    }
    return variants;
}

bool comes_before(const TileConfig& left, const TileConfig& right) {
    return order_of(left) < order_of(right);
}

}  // namespace backlight::tuning
