#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
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
/// geometry takes it is for the library to say.
TileConfig parse_tile(std::string_view text);

DataType parse_dtype(std::string_view text);

/// A configuration under the name that reports give it: a preset's, "tile_32_64_8_2", or
/// "wgmma_64_128_16_2_heads_8".
struct NamedConfig {
    std::string name;
    TileConfig config;
};

/// The preset's name where it differs in nothing but its launch, else "tile_32_64_8_2" or
/// "wgmma_64_128_16_2_heads_8".
std::string config_name(const TileConfig& config);

/// About 4096: a length that the tiles divide, for kernels that take any such length.
std::int64_t default_seqlen(const TileConfig& config);

/// Presets by name, then tiles; every preset where both are empty.
std::vector<NamedConfig> named_configs(const std::vector<std::string>& presets,
                                       const std::vector<std::string>& tiles);

}  // namespace backlight::tool
