#include "manifest.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include "backlight/error.hpp"
#include "json_text.hpp"
#include "problem_features.hpp"

namespace backlight::tool {

namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 9> config_fields = {
    "family",       "block_q",          "block_kv",
    "warps",        "stages",           "heads_per_group",
    "converts_d_q", "sequence_lengths", "programmatic_dependent_launch"};
constexpr std::array<std::string_view, 20> problem_fields = {
    "batch",         "heads",         "heads_kv",   "seqlen",         "seqlen_q",
    "seqlen_kv",     "head_dim",      "head_dim_v", "causal",         "mask_alignment",
    "window_left",   "window_right",  "dtype",      "gradient_type",  "accumulate_gradients",
    "softmax_scale", "deterministic", "packed",     "configurations", "targets"};

/// One object of a manifest, read field by field; errors say where it is.
class Fields {
  public:
    Fields(const json& object, std::string where, std::span<const std::string_view> known)
        : object_(object), where_(std::move(where)) {
        if (!object.is_object()) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("{} is {}: it must be an object with the fields {}", where_,
                                    object.dump(), fmt::join(known, ", ")));
        }
        for (const auto& [name, value] : object.items()) {
            if (std::ranges::find(known, name) == known.end()) {
                throw Error(ErrorCode::invalid_argument,
                            fmt::format("{}: there is no field '{}': the fields are {}", where_,
                                        name, fmt::join(known, ", ")));
            }
        }
    }

    bool has(const char* name) const { return object_.contains(name); }
    const json& at(const char* name) const { return object_.at(name); }
    const std::string& where() const { return where_; }

    Error wrong(const char* name, std::string_view rule) const {
        return {ErrorCode::invalid_argument,
                fmt::format("{}: {} is {}: it must be {}", where_, name,
                            has(name) ? at(name).dump() : "missing", rule)};
    }

    std::int64_t count(const char* name, std::int64_t largest, std::int64_t least = 1) const {
        const bool whole = has(name) && at(name).is_number_integer();
        // A number beyond 2^63 would read as a negative one.
        if (!whole || at(name) < least || at(name) > largest) {
            throw wrong(name, fmt::format("a whole number from {} to {}", least, largest));
        }
        return at(name).get<std::int64_t>();
    }

    /// Nothing where it is left out or null.
    std::optional<std::int64_t> optional_count(const char* name, std::int64_t least) const {
        constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
        return has(name) && !at(name).is_null() ? std::optional(count(name, largest, least))
                                                : std::nullopt;
    }

    bool boolean(const char* name, bool otherwise) const {
        if (!has(name)) {
            return otherwise;
        }
        if (!at(name).is_boolean()) {
            throw wrong(name, "true or false");
        }
        return at(name).get<bool>();
    }

    std::string text(const char* name, const char* rule) const {
        if (!at(name).is_string()) {
            throw wrong(name, rule);
        }
        return at(name).get<std::string>();
    }

    const json& list(const char* name, const char* rule) const {
        if (!at(name).is_array() || at(name).empty()) {
            throw wrong(name, rule);
        }
        return at(name);
    }

  private:
    const json& object_;
    std::string where_;
};

constexpr std::int64_t largest_extent = std::numeric_limits<std::int64_t>::max();

SequenceLengths sequence_lengths_of(const Fields& fields) {
    for (const SequenceLengths lengths :
         {SequenceLengths::run_time, SequenceLengths::compile_time}) {
        if (fields.at("sequence_lengths") == to_string(lengths)) {
            return lengths;
        }
    }
    throw fields.wrong("sequence_lengths",
                       fmt::format(R"("{}" or "{}")", to_string(SequenceLengths::run_time),
                                   to_string(SequenceLengths::compile_time)));
}

KernelFamily family_of(const Fields& fields) {
    if (!fields.has("family")) {
        return KernelFamily::mma;
    }
    std::vector<std::string> names;
    for (const KernelFamily family : kernel_families()) {
        if (fields.at("family") == to_string(family)) {
            return family;
        }
        names.push_back(fmt::format("\"{}\"", to_string(family)));
    }
    throw fields.wrong("family", fmt::format("{}", fmt::join(names, " or ")));
}

NamedConfig config_of(const json& value, const std::string& where) {
    if (value.is_string()) {
        return parse_kernel(value.get<std::string>());
    }
    const Fields fields(value, where, config_fields);
    constexpr std::int64_t largest = std::numeric_limits<int>::max();
    const KernelFamily family = family_of(fields);
    TileConfig config = family_config(family);
    // But for mma few tiles are taken: what is left out is the family's preset's.
    const auto number = [&](const char* name, int& field) {
        if (family == KernelFamily::mma || fields.has(name)) {
            field = static_cast<int>(fields.count(name, largest));
        }
    };
    number("block_q", config.block_q);
    number("block_kv", config.block_kv);
    number("warps", config.warps);
    number("stages", config.stages);
    if (fields.has("heads_per_group")) {
        number("heads_per_group", config.heads_per_group);
    }
    config.converts_d_q = fields.boolean("converts_d_q", config.converts_d_q);
    if (fields.has("sequence_lengths")) {
        config.sequence_lengths = sequence_lengths_of(fields);
    }
    config.programmatic_dependent_launch =
        fields.boolean("programmatic_dependent_launch", config.programmatic_dependent_launch);
    return {config_name(config), config};
}

/// A field whose text is an option's value too: what `parse` throws would name the option.
template <typename Value>
Value parsed(const Fields& fields, const char* name, const char* rule,
             Value (*parse)(std::string_view)) {
    const std::string text = fields.text(name, rule);
    try {
        return parse(text);
    } catch (const Error&) {
        throw fields.wrong(name, rule);
    }
}

AttentionProblem problem_of(const Fields& fields) {
    AttentionProblem problem;
    if (fields.has("batch")) {
        problem.batch = fields.count("batch", largest_extent);
    }
    if (fields.has("heads")) {
        problem.heads = fields.count("heads", largest_extent);
    }
    problem.head_dim = fields.count("head_dim", largest_extent);
    if (fields.has("seqlen")) {
        if (fields.has("seqlen_q") || fields.has("seqlen_kv")) {
            throw fields.wrong("seqlen", "left out where there are seqlen_q and seqlen_kv");
        }
        problem.seqlen_q = problem.seqlen_kv = fields.count("seqlen", largest_extent);
    } else if (fields.has("seqlen_q") || fields.has("seqlen_kv")) {
        problem.seqlen_q = fields.count("seqlen_q", largest_extent);
        problem.seqlen_kv = fields.count("seqlen_kv", largest_extent);
    }
    problem.heads_kv = fields.optional_count("heads_kv", 1);
    problem.head_dim_v = fields.optional_count("head_dim_v", 1);
    problem.causal = fields.boolean("causal", problem.causal);
    if (fields.has("mask_alignment")) {
        problem.mask_alignment =
            parsed(fields, "mask_alignment", "top_left or bottom_right", parse_mask_alignment);
    }
    problem.window_left = fields.optional_count("window_left", 0);
    problem.window_right = fields.optional_count("window_right", 0);
    if (fields.has("gradient_type")) {
        problem.gradient_type =
            parsed(fields, "gradient_type", "input or fp32", parse_gradient_type);
    }
    problem.accumulate_gradients =
        fields.boolean("accumulate_gradients", problem.accumulate_gradients);
    problem.deterministic = fields.boolean("deterministic", problem.deterministic);
    if (fields.boolean("packed", false)) {
        // The same kernels serve any totals.
        problem.packed = packed_of_equal_lengths(problem);
    }
    if (fields.has("dtype")) {
        problem.dtype = parse_dtype(fields.text("dtype", "bf16 or fp16"));
    }
    // No kernel depends on it, but text would be a mistake.
    if (fields.has("softmax_scale") && !fields.at("softmax_scale").is_null()) {
        if (!fields.at("softmax_scale").is_number()) {
            throw fields.wrong("softmax_scale", "a number");
        }
        problem.softmax_scale = fields.at("softmax_scale").get<float>();
    }
    return problem;
}

WantedProblem entry_of(const json& value, const std::string& where,
                       const ManifestDefaults& defaults) {
    const Fields fields(value, where, problem_fields);
    WantedProblem wanted{.origin = where,
                         .problem = problem_of(fields),
                         .configs = defaults.configs,
                         .targets = defaults.targets};
    if (fields.has("configurations")) {
        wanted.configs.clear();
        for (const json& config :
             fields.list("configurations", "a list of names of configurations and of objects")) {
            wanted.configs.push_back(config_of(
                config, fmt::format("{}: configuration {}", where, wanted.configs.size() + 1)));
        }
    }
    if (fields.has("targets")) {
        wanted.targets.clear();
        constexpr const char* rule = R"(a list of targets, for example ["sm_90a"])";
        for (const json& target : fields.list("targets", rule)) {
            if (!target.is_string()) {
                throw fields.wrong("targets", rule);
            }
            wanted.targets.push_back(device::target_by_name(target.get<std::string>()));
        }
    }
    return wanted;
}

}  // namespace

AttentionProblem parse_problem(const json& object, const std::string& name) {
    // The last two are what a manifest wants of a problem.
    return problem_of(
        Fields(object, name, std::span(problem_fields).first<problem_fields.size() - 2>()));
}

std::vector<WantedProblem> parse_manifest(const json& document, const std::string& name,
                                          const ManifestDefaults& defaults) {
    if (!document.is_array() || document.empty()) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("manifest '{}': it must be a list of problems, one at least", name));
    }
    std::vector<WantedProblem> problems;
    for (const json& entry : document) {
        const std::string where = fmt::format("manifest '{}': entry {}", name, problems.size() + 1);
        try {
            problems.push_back(entry_of(entry, where, defaults));
        } catch (const Error& error) {
            // What the library refuses does not know where it stands.
            const std::string text = error.what();
            throw text.starts_with(where) ? error
                                          : Error(error.code(), fmt::format("{}: {}", where, text));
        }
    }
    return problems;
}

std::vector<WantedProblem> read_manifest(const std::string& path,
                                         const ManifestDefaults& defaults) {
    std::ifstream file(path, std::ios::binary);
    std::error_code unknown;
    // A directory can be opened like a file, and fails when it is read.
    if (!file || std::filesystem::is_directory(path, unknown)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("manifest is '{}': the file could not be read", path));
    }
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto [document, problem] = parse_json(text, RepeatedField::refused);
    if (!problem.empty()) {
        throw Error(ErrorCode::invalid_argument, fmt::format("manifest '{}': {}", path, problem));
    }
    return parse_manifest(document, path, defaults);
}

}  // namespace backlight::tool
