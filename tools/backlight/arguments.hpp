#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "device/target.hpp"
#include "problem_features.hpp"

namespace backlight::tool {

/// Batch, heads, sequence length (of queries and of keys) and head dimension.
struct Shape {
    std::int64_t batch = 0;
    std::int64_t heads = 0;
    std::int64_t seqlen = 0;
    std::int64_t head_dim = 0;

    bool operator==(const Shape&) const = default;
};

/// "8_16_4096_128". Throws `invalid_argument` with the text and the rule, as all of these do.
Shape parse_shape(std::string_view text);

/// What `bench` and `tune` work on where no shape is given.
inline constexpr const char* default_shape = "8_16_4096_128";

/// A problem for each shape in text form, with the causal mask before without; equal lengths unless
/// the features say otherwise.
std::vector<AttentionProblem> square_problems(const std::vector<std::string>& shapes, bool causal,
                                              bool full, DataType dtype,
                                              const ProblemFeatures& features = {});

/// What is meant where a family's fields are left out: its first preset; the default for mma.
TileConfig family_config(KernelFamily family);

/// "block_q,block_kv,warps,stages", for example "32,64,8,2"; or fields by name, as in
/// "family=wgmma,heads_per_group=8", where what is left out is as in `family_config`. Whether the
/// geometry takes it is for the library to say. A name that `config_name` gives will do too.
TileConfig parse_tile(std::string_view text);

DataType parse_dtype(std::string_view text);

/// What `--kernel` is called where it stands for the configuration that plans choose by themselves.
inline constexpr const char* default_kernel = "default";

/// A configuration under the name that reports give it: a preset's, "tile_32_64_8_2",
/// "wgmma_64_128_16_2_heads_8", or "default".
struct NamedConfig {
    std::string name;
    TileConfig config;

    /// Of another configuration for each problem, that of `config_for`; `config` tells nothing but
    /// how it is launched.
    bool is_default() const { return name == default_kernel; }
};

/// The configuration that the problem gets: of "default" what a plan on that target uses where its
/// card has not been tuned.
TileConfig config_for(const NamedConfig& named, const AttentionProblem& problem,
                      const device::Target& target);

/// The preset's name where it differs in nothing but its launch, else "tile_32_64_8_2" or
/// "wgmma_64_128_16_2_heads_8".
std::string config_name(const TileConfig& config);

/// The same under the name that tables give it.
NamedConfig named_for(const NamedConfig& named, const AttentionProblem& problem,
                      const device::Target& target);

/// How tables tell which configuration "default" was of: "default (v4)"; other names as they are.
std::string table_name(const std::string& name, const TileConfig& config);

/// What `--kernel` and manifests name: a preset, a configuration as `config_name` has it, or
/// "default". Throws `unknown_kernel` with what there is.
NamedConfig parse_kernel(std::string_view text);

/// About 4096: a length that the tiles divide, for kernels that take any such length.
std::int64_t default_seqlen(const TileConfig& config);

/// Kernels by name, then tiles; every preset, and "default", where both are empty.
std::vector<NamedConfig> named_configs(const std::vector<std::string>& kernels,
                                       const std::vector<std::string>& tiles);

/// Of a command that has `--kernel`: all that it takes, before what is meant where it is left out.
inline constexpr const char* kernel_option_text =
    "Preset, a configuration's name such as tile_32_64_8_2, or default (what plans choose), may be "
    "repeated";

}  // namespace backlight::tool
