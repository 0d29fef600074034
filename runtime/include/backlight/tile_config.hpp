#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "backlight/export.h"

namespace backlight {

struct AttentionProblem;

/// The kernels that there are for the main part of the backward.
enum class KernelFamily {
    /// mma.sync and TMA, on every card.
    mma,
    /// wgmma and TMA with specialised warpgroups, on Hopper (sm_90a).
    wgmma,
    /// mma.sync and TMA, P and dS resident in registers, on every card.
    mma_resident,
};

BACKLIGHT_API const char* to_string(KernelFamily family) noexcept;

/// All of them, in the order of their making.
BACKLIGHT_API std::span<const KernelFamily> kernel_families() noexcept;

/// Whether a family's kernel takes heads in groups (`TileConfig::heads_per_group`).
constexpr bool groups_heads(KernelFamily family) noexcept {
    return family != KernelFamily::mma;
}

/// Whether the compiled kernel serves one sequence length or all of them.
enum class SequenceLengths {
    /// Lengths are kernel arguments: one cubin serves every length.
    run_time,
    /// Lengths are constants in the kernel: one cubin a length.
    compile_time,
};

BACKLIGHT_API const char* to_string(SequenceLengths lengths) noexcept;

/// How the main backward kernel divides a problem: everything that a tuner may sweep.
///
/// `mma`: a thread block owns `block_kv` keys and values and walks over the queries in tiles of
/// `block_q`. Its warps split the score tile S (block_q × block_kv) into row groups of 16 rows,
/// `warps · 16 / block_q` warps a row group, and the gradient tiles dK and dV (block_kv × head_dim)
/// in the same way.
///
/// `wgmma`: a thread block of 16 warps owns 128 keys and values and walks over the queries in tiles
/// of 64. Two warpgroups own 64 keys each, a third computes dQ, a fourth loads.
///
/// `mma_resident`: a thread block of four warps owns 64 keys and values, 16 a warp, and walks over
/// the queries in tiles of `block_q`. Only dS goes through shared memory, so that two blocks fit a
/// multiprocessor. Where a head dimension is above 128 the block has eight warps, two for 16 keys,
/// and one block fits (docs/wide_head_dims.md).
struct TileConfig {
    KernelFamily family = KernelFamily::mma;
    /// Query rows a tile; a multiple of 16, at most 256. wgmma: 64. mma_resident: 32, or 64 at
    /// head_dim 64.
    int block_q = 64;
    /// Key rows a thread block; a multiple of 32, at most 256. wgmma: 128. mma_resident: 64.
    int block_kv = 64;
    /// Warps a thread block; a multiple of block_q / 16 and of block_kv / 16, at most 32.
    /// wgmma: 16. mma_resident: 4, or 8 at head dimensions above 128.
    int warps = 8;
    /// Buffers for the Q and dO tiles: 1 loads after use, n loads n − 1 tiles ahead. 1 … 8.
    /// wgmma: 2 … 8, and all n load ahead. mma_resident: 2, of Q alone; at head dimensions above
    /// 128 Q has 2 in any case, and dO 1 or 2.
    int stages = 1;
    /// wgmma, mma_resident: heads whose tiles run at the same time, so that their queries and their
    /// dQ stay in the L2 cache; 1 … 1024. mma: 1.
    int heads_per_group = 1;
    /// mma_resident: the blocks convert dQ to its own type, and its fp32 accumulator is a ring of
    /// places in the L2 cache; where not, it has a place for every head, and a kernel of its own
    /// follows. false for mma, which has such a kernel, for wgmma, whose blocks always convert, and
    /// at head dimensions above 128.
    bool converts_d_q = false;
    SequenceLengths sequence_lengths = SequenceLengths::run_time;
    /// Let each kernel of the chain start while the one before it drains (programmatic dependent
    /// launch).
    bool programmatic_dependent_launch = true;

    bool operator==(const TileConfig&) const = default;
};

/// "block_q=32 block_kv=64 warps=8 stages=2 …".
BACKLIGHT_API std::string to_string(const TileConfig& config);

/// A tile configuration with a name.
struct KernelPreset {
    std::string_view name;
    TileConfig config;
    std::string_view description;
};

/// The named configurations, in the order of their making: v1, v2, v3, wgmma, v4,
/// v5.
BACKLIGHT_API std::span<const KernelPreset> kernel_presets() noexcept;

/// The configuration of that name; throws `unknown_kernel` with the names there are.
BACKLIGHT_API const TileConfig& kernel_preset(std::string_view name);

/// Dynamic shared memory of a thread block of the main kernel, in bytes.
BACKLIGHT_API std::size_t shared_memory_bytes(const TileConfig& config,
                                              const AttentionProblem& problem) noexcept;
/// The same of a problem that asks for nothing but heads of so many columns.
BACKLIGHT_API std::size_t shared_memory_bytes(const TileConfig& config,
                                              std::int64_t head_dim) noexcept;

}  // namespace backlight
