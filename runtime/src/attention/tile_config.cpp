#include "backlight/tile_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "backlight/error.hpp"
#include "backlight/problem.hpp"

namespace backlight {

const char* to_string(KernelFamily family) noexcept {
    switch (family) {
        case KernelFamily::wgmma:
            return "wgmma";
        case KernelFamily::mma_resident:
            return "mma_resident";
        default:
            return "mma";
    }
}

std::span<const KernelFamily> kernel_families() noexcept {
    static constexpr std::array families = {KernelFamily::mma, KernelFamily::wgmma,
                                            KernelFamily::mma_resident};
    return families;
}

const char* to_string(SequenceLengths lengths) noexcept {
    return lengths == SequenceLengths::compile_time ? "compile_time" : "run_time";
}

std::string to_string(const TileConfig& config) {
    std::string family;
    if (groups_heads(config.family)) {
        family = fmt::format("family={} heads_per_group={} ", to_string(config.family),
                             config.heads_per_group);
        if (config.converts_d_q) {
            family += "converts_d_q=true ";
        }
    }
    return fmt::format(
        "{}block_q={} block_kv={} warps={} stages={} sequence_lengths={} "
        "programmatic_dependent_launch={}",
        family, config.block_q, config.block_kv, config.warps, config.stages,
        to_string(config.sequence_lengths), config.programmatic_dependent_launch);
}

std::span<const KernelPreset> kernel_presets() noexcept {
    static constexpr std::array presets = {
        KernelPreset{.name = "v1",
                     .config = {.block_q = 64, .block_kv = 64, .warps = 16, .stages = 1},
                     .description = "64×64 tiles, 16 warps: fragments fit barely, spills"},
        KernelPreset{.name = "v2",
                     .config = {.block_q = 64, .block_kv = 64, .warps = 8, .stages = 1},
                     .description = "64×64 tiles, 8 warps: each fragment feeds twice the products"},
        KernelPreset{.name = "v3",
                     .config = {.block_q = 32, .block_kv = 64, .warps = 8, .stages = 2},
                     .description = "32×64 tiles, 8 warps, the next Q and dO tile loads ahead"},
        KernelPreset{.name = "wgmma",
                     .config = {.family = KernelFamily::wgmma,
                                .block_q = 64,
                                .block_kv = 128,
                                .warps = 16,
                                .stages = 2,
                                .heads_per_group = 4},
                     .description = "64×128 tiles, specialised warpgroups (Hopper)"},
        KernelPreset{.name = "v4",
                     .config = {.family = KernelFamily::mma_resident,
                                .block_q = 32,
                                .block_kv = 64,
                                .warps = 4,
                                .stages = 2,
                                .heads_per_group = 4},
                     .description = "32×64 tiles, 4 warps: P and dS stay in registers, two blocks "
                                    "a multiprocessor"},
        KernelPreset{.name = "v5",
                     .config = {.family = KernelFamily::mma_resident,
                                .block_q = 32,
                                .block_kv = 64,
                                .warps = 4,
                                .stages = 2,
                                .heads_per_group = 4,
                                .converts_d_q = true},
                     .description = "v4, and the blocks convert dQ themselves, whose accumulator "
                                    "stays in the L2 cache"},
    };
    return presets;
}

const TileConfig& kernel_preset(std::string_view name) {
    std::vector<std::string_view> names;
    for (const KernelPreset& preset : kernel_presets()) {
        if (preset.name == name) {
            return preset.config;
        }
        names.push_back(preset.name);
    }
    throw Error(ErrorCode::unknown_kernel,
                fmt::format("kernel is '{}': it must be one of {}", name, fmt::join(names, ", ")));
}

namespace {

/// Where sequences are packed, what a block works on follows: a tile, and a conversion.
constexpr std::size_t with_packed_work(std::size_t bytes, std::size_t parts) noexcept {
    constexpr std::size_t unit = 16;
    constexpr std::size_t part_bytes = 32;
    return (bytes + unit - 1) / unit * unit + parts * part_bytes;
}

/// Of mma_resident at head dimensions above 128.
std::size_t wide_shared_memory_bytes(const TileConfig& config, std::int64_t head_dim,
                                     std::int64_t head_dim_v, bool packed,
                                     bool takes_tickets) noexcept {
    constexpr std::size_t element_bytes = 2;
    const auto block_q = static_cast<std::size_t>(config.block_q);
    const auto block_kv = static_cast<std::size_t>(config.block_kv);
    const auto d_o_stages = static_cast<std::size_t>(config.stages);
    const std::size_t row = static_cast<std::size_t>(head_dim) * element_bytes;
    const std::size_t row_v = static_cast<std::size_t>(head_dim_v) * element_bytes;
    const std::size_t first = block_kv * row + block_q * (row + row_v);  // K, Q, dO
    const std::size_t d_s = 2 * block_q * block_kv * element_bytes;
    const std::size_t p = block_q * block_kv * sizeof(float);
    // V passes through what is written later, where that is enough for it.
    const std::size_t later =
        std::max(block_q * (row + (d_o_stages - 1) * row_v) + d_s + p, block_kv * row_v);
    const std::size_t statistics = 2 * block_q * sizeof(float);  // LSE, delta
    // One for K and V, one a place of Q and dO, the exchange of dS, and the end of dO's reads.
    const std::size_t barriers = 1 + (2 + d_o_stages) + 2;
    const std::size_t bytes = first + later + statistics + barriers * 8;
    return packed ? with_packed_work(bytes, 1) : bytes + (takes_tickets ? 8 : 0);
}

}  // namespace

std::size_t shared_memory_bytes(const TileConfig& config, std::int64_t head_dim) noexcept {
    return shared_memory_bytes(config, AttentionProblem{.head_dim = head_dim});
}

std::size_t shared_memory_bytes(const TileConfig& config,
                                const AttentionProblem& problem) noexcept {
    const std::int64_t head_dim = attention::tile_head_dim(problem);
    if (config.family == KernelFamily::mma_resident && attention::has_wide_heads(problem)) {
        return wide_shared_memory_bytes(config, head_dim, attention::tile_head_dim_v(problem),
                                        problem.packed.has_value(),
                                        attention::takes_tickets(problem, config));
    }
    constexpr std::size_t element_bytes = 2;
    constexpr std::size_t barrier_bytes = 8;
    const auto block_q = static_cast<std::size_t>(config.block_q);
    const auto block_kv = static_cast<std::size_t>(config.block_kv);
    const auto stages = static_cast<std::size_t>(config.stages);
    const auto depth = static_cast<std::size_t>(head_dim);
    const std::size_t kv_tiles = 2 * block_kv * depth * element_bytes;             // K, V
    const std::size_t query_tiles = 2 * stages * block_q * depth * element_bytes;  // Q, dO
    const std::size_t score_tiles = 2 * block_q * block_kv * element_bytes;        // P, dS
    if (config.family == KernelFamily::wgmma) {
        const std::size_t d_q_parts = 2 * block_q * 64 * sizeof(float);
        const std::size_t statistics = 2 * stages * block_q * sizeof(float);  // LSE, delta
        // dK has a place of its own at head_dim 64.
        const std::size_t d_k = head_dim == 64 ? block_kv * depth * element_bytes : 0;
        // dQ on its way to its own type: three halves of a part in fp32, one part in 16 bits, and
        // zeros.
        const std::size_t half_part = block_q * 32 * sizeof(float);
        const std::size_t conversion = 3 * half_part + block_q * 64 * element_bytes + 1024;
        // At head_dim 64 there is room for the next K and V tile.
        const std::size_t kv_buffers = head_dim == 64 ? 2 : 1;
        constexpr std::size_t work_slots = 6;
        // Four a buffer of K and V and a stage, four for the two buffers of dS, two a ticket, and
        // three of the conversion.
        const std::size_t barriers = 4 * kv_buffers + 4 * stages + 4 + 2 * work_slots + 3;
        const std::size_t work_bytes = (problem.packed ? 64 : 32) * work_slots;
        return kv_buffers * kv_tiles + query_tiles + score_tiles + d_q_parts + d_k + conversion +
               statistics + work_bytes + barriers * barrier_bytes;
    }
    if (config.family == KernelFamily::mma_resident) {
        // V passes through what is written later: it has no place of its own.
        const std::size_t tiles = (block_kv + (stages + 1) * block_q) * depth * element_bytes;
        const std::size_t d_s = 2 * block_q * block_kv * element_bytes;
        const std::size_t statistics = 2 * block_q * sizeof(float);  // LSE, delta
        // One for K and V, one a tile of Q and dO, one for the exchange of dS.
        const std::size_t barriers = 1 + (stages + 1) + 1;
        const std::size_t bytes = tiles + d_s + statistics + barriers * barrier_bytes;
        if (problem.packed) {
            return with_packed_work(bytes, config.converts_d_q ? 2 : 1);
        }
        const std::size_t ticket = attention::takes_tickets(problem, config) ? 8 : 0;
        return bytes + ticket;
    }
    // One barrier for K and V, one for each load of Q and dO in flight.
    const std::size_t barriers = 1 + (stages == 1 ? 1 : stages - 1);
    return kv_tiles + query_tiles + score_tiles + barriers * barrier_bytes;
}

}  // namespace backlight
