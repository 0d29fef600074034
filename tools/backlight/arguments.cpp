#include "arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>
#include <system_error>
#include <unordered_map>

#include "attention/fitted_config.hpp"
#include "backlight/error.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

namespace {

/// Exactly four positive whole numbers between separators.
std::optional<std::array<std::int64_t, 4>> four_numbers(std::string_view text, char separator) {
    std::array<std::int64_t, 4> numbers{};
    const char* at = text.data();
    const char* const end = text.data() + text.size();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (i > 0) {
            if (at == end || *at != separator) {
                return std::nullopt;
            }
            ++at;
        }
        const auto [next, failure] = std::from_chars(at, end, numbers[i]);
        if (failure != std::errc{} || numbers[i] < 1) {
            return std::nullopt;
        }
        at = next;
    }
    return at == end ? std::optional(numbers) : std::nullopt;
}

}  // namespace

Shape parse_shape(std::string_view text) {
    const auto numbers = four_numbers(text, '_');
    if (!numbers) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("shape is '{}': it must be four positive whole numbers, "
                                "batch_heads_seqlen_headdim, for example 8_16_4096_128",
                                text));
    }
    return {(*numbers)[0], (*numbers)[1], (*numbers)[2], (*numbers)[3]};
}

std::vector<AttentionProblem> square_problems(const std::vector<std::string>& shapes, bool causal,
                                              bool full, DataType dtype,
                                              const ProblemFeatures& features) {
    std::vector<AttentionProblem> problems;
    for (const std::string& text : shapes) {
        const Shape shape = parse_shape(text);
        for (const bool masked : {true, false}) {
            if (masked ? causal : full) {
                problems.push_back(features.applied_to({.batch = shape.batch,
                                                        .heads = shape.heads,
                                                        .seqlen_q = shape.seqlen,
                                                        .seqlen_kv = shape.seqlen,
                                                        .head_dim = shape.head_dim,
                                                        .causal = masked,
                                                        .dtype = dtype}));
            }
        }
    }
    return problems;
}

namespace {

/// The family of that name.
std::optional<KernelFamily> family_named(std::string_view name) {
    for (const KernelFamily family : kernel_families()) {
        if (name == to_string(family)) {
            return family;
        }
    }
    return std::nullopt;
}

/// Four whole numbers of a tile, each as wide as TileConfig has it.
bool set_tile(TileConfig& config, std::string_view text, char separator) {
    const auto numbers = four_numbers(text, separator);
    if (!numbers || std::ranges::any_of(*numbers, [](std::int64_t number) {
            return number > std::numeric_limits<int>::max();
        })) {
        return false;
    }
    config.block_q = static_cast<int>((*numbers)[0]);
    config.block_kv = static_cast<int>((*numbers)[1]);
    config.warps = static_cast<int>((*numbers)[2]);
    config.stages = static_cast<int>((*numbers)[3]);
    return true;
}

constexpr std::string_view heads_part = "_heads_";
constexpr std::string_view converting_part = "_converting";

/// How the names of a family's configurations begin.
std::string name_prefix(KernelFamily family) {
    return groups_heads(family) ? fmt::format("{}_", to_string(family)) : "tile_";
}

/// The configuration of which `config_name` says that.
std::optional<TileConfig> config_named(std::string_view text) {
    for (const KernelPreset& preset : kernel_presets()) {
        if (text == preset.name) {
            return preset.config;
        }
    }
    for (const KernelFamily family : kernel_families()) {
        const std::string prefix = name_prefix(family);
        if (!text.starts_with(prefix)) {
            continue;
        }
        std::string_view tile = text.substr(prefix.size());
        TileConfig config{.family = family};
        if (groups_heads(family)) {
            const std::size_t end = tile.find(heads_part);
            if (end == std::string_view::npos) {
                continue;
            }
            std::string_view heads = tile.substr(end + heads_part.size());
            config.converts_d_q = heads.ends_with(converting_part);
            if (config.converts_d_q) {
                heads.remove_suffix(converting_part.size());
            }
            const char* const last = heads.data() + heads.size();
            const auto [rest, failure] =
                std::from_chars(heads.data(), last, config.heads_per_group);
            if (failure != std::errc() || rest != last) {
                continue;
            }
            tile = tile.substr(0, end);
        }
        if (set_tile(config, tile, '_')) {
            return config;
        }
    }
    return std::nullopt;
}

/// "name=value,name=value": what is not named is that of the family's preset, if `text` begins with
/// a family, or the default.
std::optional<TileConfig> named_fields(std::string_view text) {
    TileConfig config;
    constexpr std::string_view first = "family=";
    if (text.starts_with(first)) {
        const std::string_view name = text.substr(0, text.find(',')).substr(first.size());
        if (const auto family = family_named(name)) {
            config = family_config(*family);
        }
    }
    const std::unordered_map<std::string_view, int*> numbers = {
        {"block_q", &config.block_q},
        {"block_kv", &config.block_kv},
        {"warps", &config.warps},
        {"stages", &config.stages},
        {"heads_per_group", &config.heads_per_group},
    };
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(','), text.size());
        const std::string_view field = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        const std::size_t equals = field.find('=');
        if (equals == std::string_view::npos) {
            return std::nullopt;
        }
        const std::string_view name = field.substr(0, equals);
        const std::string_view value = field.substr(equals + 1);
        if (const auto family = family_named(value); name == "family" && family) {
            config.family = *family;
        } else if (name == "converts_d_q" && (value == "true" || value == "false")) {
            config.converts_d_q = value == "true";
        } else if (const auto found = numbers.find(name); found != numbers.end()) {
            const auto [rest, failure] =
                std::from_chars(value.data(), value.data() + value.size(), *found->second);
            if (failure != std::errc() || rest != value.data() + value.size()) {
                return std::nullopt;
            }
        } else {
            return std::nullopt;
        }
    }
    return config;
}

}  // namespace

TileConfig family_config(KernelFamily family) {
    for (const KernelPreset& preset : kernel_presets()) {
        if (family != KernelFamily::mma && preset.config.family == family) {
            return preset.config;
        }
    }
    return {};
}

TileConfig parse_tile(std::string_view text) {
    if (text.find('=') != std::string_view::npos) {
        if (const auto config = named_fields(text)) {
            return *config;
        }
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("tile is '{}': it must be name=value pairs with commas between "
                        "them, of family (mma, wgmma, mma_resident), block_q, block_kv, "
                        "warps, stages, heads_per_group (whole numbers), converts_d_q (true, "
                        "false)",
                        text));
    }
    TileConfig config;
    if (set_tile(config, text, ',')) {
        return config;
    }
    if (const auto named = config_named(text)) {
        return *named;
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tile is '{}': it must be four positive whole numbers, "
                            "block_q,block_kv,warps,stages, for example 32,64,8,2",
                            text));
}

DataType parse_dtype(std::string_view text) {
    for (const DataType type : {DataType::bf16, DataType::fp16}) {
        if (text == to_string(type)) {
            return type;
        }
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("dtype is '{}': it must be bf16 or fp16", text));
}

std::string config_name(const TileConfig& config) {
    for (const KernelPreset& preset : kernel_presets()) {
        TileConfig launched_alike = preset.config;
        launched_alike.sequence_lengths = config.sequence_lengths;
        launched_alike.programmatic_dependent_launch = config.programmatic_dependent_launch;
        if (launched_alike == config) {
            return std::string(preset.name);
        }
    }
    const std::string name =
        fmt::format("{}{}_{}_{}_{}", name_prefix(config.family), config.block_q, config.block_kv,
                    config.warps, config.stages);
    return groups_heads(config.family)
               ? fmt::format("{}{}{}{}", name, heads_part, config.heads_per_group,
                             config.converts_d_q ? converting_part : "")
               : name;
}

TileConfig config_for(const NamedConfig& named, const AttentionProblem& problem,
                      const device::Target& target) {
    if (!named.is_default()) {
        return attention::fitted_config(named.config, problem, target);
    }
    TileConfig config = default_config(problem, target);
    config.sequence_lengths = named.config.sequence_lengths;
    config.programmatic_dependent_launch = named.config.programmatic_dependent_launch;
    return config;
}

std::string table_name(const std::string& name, const TileConfig& config) {
    return name == default_kernel ? fmt::format("{} ({})", name, config_name(config)) : name;
}

NamedConfig named_for(const NamedConfig& named, const AttentionProblem& problem,
                      const device::Target& target) {
    const TileConfig config = config_for(named, problem, target);
    return {.name = table_name(named.name, config), .config = config};
}

NamedConfig parse_kernel(std::string_view text) {
    if (text == default_kernel) {
        return {.name = default_kernel, .config = {}};
    }
    if (const auto config = config_named(text)) {
        return {.name = config_name(*config), .config = *config};
    }
    std::vector<std::string_view> names;
    for (const KernelPreset& preset : kernel_presets()) {
        names.push_back(preset.name);
    }
    throw Error(ErrorCode::unknown_kernel,
                fmt::format("kernel is '{}': it must be one of {}, {}, or a configuration's name "
                            "such as tile_32_64_8_2 or wgmma_64_128_16_3_heads_4",
                            text, fmt::join(names, ", "), default_kernel));
}

std::int64_t default_seqlen(const TileConfig& config) {
    constexpr std::int64_t usual = 4096;
    constexpr int largest_block = 256;
    if (config.block_q < 1 || config.block_kv < 1 || config.block_q > largest_block ||
        config.block_kv > largest_block) {
        return usual;  // refused by its own name later
    }
    const std::int64_t step = std::lcm<std::int64_t>(config.block_q, config.block_kv);
    return (usual + step - 1) / step * step;
}

std::vector<NamedConfig> named_configs(const std::vector<std::string>& kernels,
                                       const std::vector<std::string>& tiles) {
    std::vector<NamedConfig> configs;
    if (kernels.empty() && tiles.empty()) {
        for (const KernelPreset& preset : kernel_presets()) {
            configs.push_back({std::string(preset.name), preset.config});
        }
        configs.push_back(parse_kernel(default_kernel));
    }
    for (const std::string& kernel : kernels) {
        configs.push_back(parse_kernel(kernel));
    }
    for (const std::string& tile : tiles) {
        const TileConfig config = parse_tile(tile);
        configs.push_back({config_name(config), config});
    }
    return configs;
}

}  // namespace backlight::tool
