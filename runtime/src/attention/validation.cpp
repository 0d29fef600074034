#include "attention/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>

#include "attention/family_support.hpp"
#include "attention/kernels.hpp"
#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "backlight/error.hpp"

namespace backlight::attention {

namespace {

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ErrorCode::invalid_argument, message);
}

// The kernels count rows in 32 bits, and a few tiles beyond the last one.
constexpr std::int64_t largest_extent = std::int64_t{1} << 30;

void require_extent(std::string_view field, std::int64_t value, std::int64_t least = 1) {
    if (value < least || value > largest_extent) {
        refuse(fmt::format("{} is {}: it must be {} … {}", field, value, least, largest_extent));
    }
}

void require_head_dim(std::string_view field, std::int64_t value) {
    if (value < 8 || value > 256 || value % 8 != 0) {
        throw Error(
            ErrorCode::unsupported,
            fmt::format("{} is {}: it must be a multiple of 8 from 8 to 256", field, value));
    }
}

/// A side of the window, if it is bounded.
void require_window(std::string_view field, const std::optional<std::int64_t>& keys) {
    if (keys && *keys < 0) {
        refuse(
            fmt::format("{} is {}: it must be 0 or more, or left out where the window has no "
                        "bound there",
                        field, *keys));
    }
}

/// One of an enumeration's values.
template <typename Enumeration>
void require_named(std::string_view field, Enumeration value, Enumeration first,
                   Enumeration second) {
    if (value != first && value != second) {
        refuse(fmt::format("{} is {}: it must be {} or {}", field, static_cast<int>(value),
                           to_string(first), to_string(second)));
    }
}

void require_grid(std::string_view kernel, std::int64_t heads, std::int64_t tiles) {
    // cuLaunchKernelEx takes 2^31 - 1 blocks along x.
    constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
    if (tiles > 0 && heads > largest / tiles) {
        refuse(
            fmt::format("batch · heads is {}: with {} blocks a head the {} kernel would need "
                        "more than 2^31 - 1 blocks",
                        heads, tiles, kernel));
    }
}

void validate_packed(const AttentionProblem& problem) {
    const PackedSequences& packed = *problem.packed;
    require_extent("packed.total_q", packed.total_q, 0);
    require_extent("packed.total_kv", packed.total_kv, 0);
    // Each sequence looks at all others for its place in the order of tickets.
    constexpr std::int64_t most_sequences = 65536;
    if (problem.batch > most_sequences) {
        refuse(fmt::format("batch is {}: it must be at most {} where sequences are packed",
                           problem.batch, most_sequences));
    }
    require_extent("batch · heads", problem.batch * problem.heads);
    // Blocks that prepare the sequences are fewer than those of their rows.
    require_grid("delta", problem.heads, 2 * packed_row_blocks(problem, rows_per_block));
    constexpr std::int64_t most_rows = std::int64_t{1} << 50;
    const std::int64_t rows = std::max(packed.total_q, packed.total_kv) + problem.batch * 256;
    if (problem.heads > most_rows / rows) {
        refuse(
            fmt::format("heads is {}: heads · (total + 256 batch) must be at most 2^50, with {} "
                        "rows in all",
                        problem.heads, rows));
    }
}

}  // namespace

void validate(const AttentionProblem& problem) {
    require_extent("batch", problem.batch);
    require_extent("heads", problem.heads);
    require_extent("heads_kv", problem.effective_heads_kv());
    if (problem.heads % problem.effective_heads_kv() != 0) {
        refuse(fmt::format("heads_kv is {}: it must divide heads = {}",
                           problem.effective_heads_kv(), problem.heads));
    }
    require_extent("seqlen_q", problem.seqlen_q, 0);
    require_extent("seqlen_kv", problem.seqlen_kv, 0);
    require_head_dim("head_dim", problem.head_dim);
    require_head_dim("head_dim_v", problem.effective_head_dim_v());
    require_window("window_left", problem.window_left);
    require_window("window_right", problem.window_right);
    require_named("mask_alignment", problem.mask_alignment, MaskAlignment::top_left,
                  MaskAlignment::bottom_right);
    require_named("dtype", problem.dtype, DataType::bf16, DataType::fp16);
    require_named("gradient_type", problem.gradient_type, GradientType::input, GradientType::fp32);
    if (problem.accumulate_gradients && problem.gradient_type != GradientType::fp32) {
        refuse(
            fmt::format("accumulate_gradients is true and gradient_type is {}: it must be fp32, "
                        "for sums of rounded gradients would lose what is added",
                        to_string(problem.gradient_type)));
    }
    // The kernels multiply it by log2(e).
    constexpr float largest_scale = 1e38F;
    if (problem.softmax_scale && !(std::abs(*problem.softmax_scale) <= largest_scale)) {
        refuse(fmt::format("softmax_scale is {}: it must be from -1e38 to 1e38",
                           *problem.softmax_scale));
    }
    // batch · heads cannot overflow: each is below 2^31.
    const std::int64_t batch_heads = problem.batch * problem.heads;
    if (problem.packed) {
        validate_packed(problem);
        return;
    }
    require_grid("delta", batch_heads, (problem.seqlen_q + rows_per_block - 1) / rows_per_block);
    require_extent("batch · heads", batch_heads);
    // The largest offset that a kernel computes, in bytes of the fp32 accumulator.
    constexpr std::int64_t most_rows = std::int64_t{1} << 50;
    const std::int64_t seqlen = std::max(problem.seqlen_q, problem.seqlen_kv);
    if (seqlen > 0 && batch_heads > most_rows / seqlen) {
        refuse(fmt::format("batch · heads · seqlen is {} · {} · {}: it must be at most 2^50",
                           problem.batch, problem.heads, seqlen));
    }
}

namespace {

using Require = std::function<void(bool holds, std::string_view field, std::int64_t value,
                                   std::string_view rule)>;

void validate_mma(const TileConfig& config, const AttentionProblem& problem,
                  const Require& require) {
    require(config.heads_per_group == 1, "heads_per_group", config.heads_per_group,
            "it must be 1 for mma");
    const int query_row_groups = config.block_q / 16;
    const int key_row_groups = config.block_kv / 16;
    require(config.warps % query_row_groups == 0, "warps", config.warps,
            fmt::format("it must be a multiple of block_q / 16 = {}, so that the row groups of S "
                        "share the warps evenly",
                        query_row_groups));
    require(config.warps % key_row_groups == 0, "warps", config.warps,
            fmt::format("it must be a multiple of block_kv / 16 = {}, so that the row groups of dK "
                        "and dV share the warps evenly",
                        key_row_groups));
    const int warps_per_query_row_group = config.warps / query_row_groups;
    const int warps_per_key_row_group = config.warps / key_row_groups;
    // A warp's columns are whole pairs of 8-wide fragments, and fill 128-byte (or 64-byte) panels
    // of shared memory or divide one.
    const auto require_span = [&](std::string_view matrix, std::int64_t columns, int parts,
                                  std::int64_t panel) {
        const std::int64_t span = columns / parts;
        require(columns % parts == 0 && span % 16 == 0 && (span % panel == 0 || panel % span == 0),
                "warps", config.warps,
                fmt::format("it divides the {} columns of {} into {} parts; each must be 16, 32 or "
                            "a multiple of {} columns",
                            columns, matrix, parts, panel));
    };
    require_span("S", config.block_kv, warps_per_query_row_group,
                 config.block_kv % 64 == 0 ? 64 : 32);
    require_span("dQ", problem.head_dim, warps_per_query_row_group, 64);
    require_span("dK and dV", problem.head_dim, warps_per_key_row_group, 64);
}

void validate_wgmma(const TileConfig& config, const device::Target& target,
                    const Require& require) {
    if (target.compute_major != 9) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("family is wgmma: its instructions are Hopper's (sm_90a) alone, "
                                "the target is {}",
                                target.name));
    }
    require(config.block_q == 64, "block_q", config.block_q, "it must be 64 for wgmma");
    require(config.block_kv == 128, "block_kv", config.block_kv, "it must be 128 for wgmma");
    require(config.warps == 16, "warps", config.warps, "it must be 16 for wgmma");
    require(config.stages >= 2 && config.stages <= 8, "stages", config.stages,
            "it must be 2 … 8 for wgmma");
}

void validate_mma_resident(const TileConfig& config, const AttentionProblem& problem,
                           const Require& require) {
    const bool wide = has_wide_heads(problem);
    require(config.block_q == 32 || (config.block_q == 64 && tile_head_dim(problem) == 64 && !wide),
            "block_q", config.block_q,
            "it must be 32 for mma_resident, or 64 at head dimensions up to 64");
    require(config.block_kv == 64, "block_kv", config.block_kv, "it must be 64 for mma_resident");
    if (wide) {
        require(config.warps == 8, "warps", config.warps,
                "it must be 8 for mma_resident at head dimensions above 128");
        require(config.stages == 1 || config.stages == 2, "stages", config.stages,
                "it must be 1 or 2 for mma_resident at head dimensions above 128");
        if (config.converts_d_q) {
            refuse(
                fmt::format("converts_d_q is true: it must be false for mma_resident at head "
                            "dimensions above 128 (configuration {})",
                            to_string(config)));
        }
        return;
    }
    require(config.warps == 4, "warps", config.warps, "it must be 4 for mma_resident");
    require(config.stages == 2, "stages", config.stages, "it must be 2 for mma_resident");
}

/// The kernels count tickets, and those that convert dQ pairs of query and key tiles, in 32 bits.
void validate_rounds(const TileConfig& config, const AttentionProblem& problem) {
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    const Rounds rounds(problem, config);
    // By one ticket beyond the last each block of wgmma learns that there are no more.
    const std::int64_t most_tickets = most - rounds.resident_blocks;
    if (rounds.tickets() > most_tickets) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("batch · heads · seqlen_kv / block_kv is {} · {} · {}: {} takes {} "
                                "tickets for it, of which it counts at most {}",
                                problem.batch, problem.heads, kv_tiles(problem, config),
                                to_string(config.family), rounds.tickets(), most_tickets));
    }
    const std::int64_t queries =
        problem.heads / problem.effective_heads_kv() * query_tiles(problem, config);
    const std::int64_t keys = kv_tiles(problem, config);
    // By the product kernels find the share of a conversion.
    if (converts_d_q(config) && queries > most / keys) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("seqlen_q / block_q · seqlen_kv / block_kv is {} · {}: it must be "
                                "at most {} for {}",
                                queries, keys, most, to_string(config.family)));
    }
}

}  // namespace

namespace {

[[noreturn]] void refuse(const Unsupported& lack, KernelFamily family) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: {} for {}", lack.value, lack.rule, to_string(family)));
}

}  // namespace

void validate(const TileConfig& config, const AttentionProblem& problem,
              const device::Target& target) {
    const auto require = [&](bool holds, std::string_view field, std::int64_t value,
                             std::string_view rule) {
        if (!holds) {
            refuse(fmt::format("{} is {}: {} (configuration {})", field, value, rule,
                               to_string(config)));
        }
    };
    require(std::ranges::count(kernel_families(), config.family) == 1, "family",
            static_cast<int>(config.family), "it must be mma, wgmma or mma_resident");
    require(config.block_q >= 16 && config.block_q <= 256 && config.block_q % 16 == 0, "block_q",
            config.block_q, "it must be a multiple of 16 from 16 to 256");
    require(config.block_kv >= 32 && config.block_kv <= 256 && config.block_kv % 32 == 0,
            "block_kv", config.block_kv, "it must be a multiple of 32 from 32 to 256");
    require(config.stages >= 1 && config.stages <= 8, "stages", config.stages, "it must be 1 … 8");
    require(config.warps >= 1 && config.warps <= 32, "warps", config.warps, "it must be 1 … 32");

    require(config.sequence_lengths == SequenceLengths::run_time ||
                config.sequence_lengths == SequenceLengths::compile_time,
            "sequence_lengths", static_cast<int>(config.sequence_lengths),
            "it must be run_time or compile_time");

    if (config.converts_d_q && config.family != KernelFamily::mma_resident) {
        refuse(
            fmt::format("converts_d_q is true: it must be false but for mma_resident; wgmma "
                        "converts dQ in any case (configuration {})",
                        to_string(config)));
    }
    if (problem.is_empty()) {
        return;  // No kernel of the family is launched.
    }
    if (const auto lack = unsupported_feature(problem, config.family)) {
        refuse(*lack, config.family);
    }
    if (groups_heads(config.family)) {
        require(config.heads_per_group >= 1 && config.heads_per_group <= 1024, "heads_per_group",
                config.heads_per_group, "it must be 1 … 1024");
    }
    if (config.family == KernelFamily::wgmma) {
        validate_wgmma(config, target, require);
    } else if (config.family == KernelFamily::mma_resident) {
        validate_mma_resident(config, problem, require);
    } else {
        validate_mma(config, problem, require);
    }

    if (const auto lack = unsupported_length(problem, config)) {
        refuse(*lack, config.family);
    }
    if (problem.packed) {
        if (config.sequence_lengths == SequenceLengths::compile_time) {
            refuse(
                fmt::format("sequence_lengths is compile_time: it must be run_time where sequences "
                            "are packed, whose lengths the device tells (configuration {})",
                            to_string(config)));
        }
    } else {
        require_grid("main", problem.batch * problem.effective_heads_kv(),
                     kv_tiles(problem, config));
    }

    if (groups_heads(config.family)) {
        validate_rounds(config, problem);
    }

    const std::size_t shared = shared_memory_bytes(config, problem);
    if (shared > target.shared_bytes_per_block) {
        throw Error(ErrorCode::shared_memory_exceeded,
                    fmt::format("the configuration {} needs {} bytes of shared memory at head_dim "
                                "{}: a block of {} has at most {}",
                                to_string(config), shared, problem.head_dim, target.name,
                                target.shared_bytes_per_block));
    }
}

}  // namespace backlight::attention
