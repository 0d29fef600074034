#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace backlight {

/// Whether the compiled kernel serves one sequence length or all of them.
enum class SequenceLengths {
    /// Lengths are kernel arguments: one cubin serves every length.
    run_time,
    /// Lengths are constants in the kernel: one cubin a length.
    compile_time,
};

const char* to_string(SequenceLengths lengths) noexcept;

/// How the main backward kernel divides a problem: everything that a tuner may sweep.
///
/// A thread block owns `block_kv` keys and values and walks over the queries in tiles of
/// `block_q`. Its warps split the score tile S (block_q × block_kv) into row groups of 16 rows,
/// `warps · 16 / block_q` warps a row group, and the gradient tiles dK and dV (block_kv × head_dim)
/// in the same way.
struct TileConfig {
    /// Query rows a tile; a multiple of 16, at most 256.
    int block_q = 64;
    /// Key rows a thread block; a multiple of 32, at most 256.
    int block_kv = 64;
    /// Warps a thread block; a multiple of block_q / 16 and of block_kv / 16, at most 32.
    int warps = 8;
    /// Buffers for the Q and dO tiles: 1 loads after use, n loads n − 1 tiles ahead. 1 … 8.
    int stages = 1;
    SequenceLengths sequence_lengths = SequenceLengths::run_time;
    /// Let each kernel of the chain start while the one before it drains (programmatic dependent
    /// launch).
    bool programmatic_dependent_launch = true;

    bool operator==(const TileConfig&) const = default;
};

/// "block_q=32 block_kv=64 warps=8 stages=2 …".
std::string to_string(const TileConfig& config);

/// A tile configuration with a name.
struct KernelPreset {
    std::string_view name;
    TileConfig config;
    std::string_view description;
};

/// The named configurations, in the order of their making: v1, v2, v3.
std::span<const KernelPreset> kernel_presets() noexcept;

/// The configuration of that name; throws `unknown_kernel` with the names there are.
const TileConfig& kernel_preset(std::string_view name);

/// Dynamic shared memory of a thread block of the main kernel, in bytes.
std::size_t shared_memory_bytes(const TileConfig& config, std::int64_t head_dim) noexcept;

}  // namespace backlight
