// The text of a tuning database.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "backlight/error.hpp"
#include "json_text.hpp"
#include "tuning/database.hpp"

namespace backlight::tuning {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* format_name = "backlight tuning";
constexpr int format_version = 1;
constexpr std::size_t most_samples = 10000;

// A text is this line, a line a record, and the last line.
std::string first_line() {
    return fmt::format("{{\"format\": \"{}\", \"version\": {}, \"records\": [\n", format_name,
                       format_version);
}
constexpr std::string_view last_line = "\n]}\n";
constexpr std::string_view unchecked_field = "\"checked\":false";

/// Events resolve about half a microsecond: more digits than nanoseconds are none.
double rounded(double milliseconds) {
    constexpr double nanoseconds_per_millisecond = 1e6;
    return std::round(milliseconds * nanoseconds_per_millisecond) / nanoseconds_per_millisecond;
}

/// The fields that came later, only where they are given: files without them stay the same text.
void add_later_fields(Json& object, const AttentionProblem& problem) {
    const AttentionProblem usual;
    const auto add = [&](const char* field, const std::optional<std::int64_t>& value) {
        if (value) {
            object[field] = *value;
        }
    };
    add("heads_kv", problem.heads_kv);
    add("head_dim_v", problem.head_dim_v);
    add("window_left", problem.window_left);
    add("window_right", problem.window_right);
    if (problem.mask_alignment != usual.mask_alignment) {
        object["mask_alignment"] = to_string(problem.mask_alignment);
    }
    if (problem.gradient_type != usual.gradient_type) {
        object["gradient_type"] = to_string(problem.gradient_type);
    }
    if (problem.accumulate_gradients) {
        object["accumulate_gradients"] = true;
    }
    if (problem.deterministic) {
        object["deterministic"] = true;
    }
}

Json to_json(const Record& record) {
    Json samples = Json::array();
    for (const double sample : record.samples_milliseconds) {
        samples.push_back(rounded(sample));
    }
    Json problem = {
        {"batch", record.problem.batch},           {"heads", record.problem.heads},
        {"seqlen_q", record.problem.seqlen_q},     {"seqlen_kv", record.problem.seqlen_kv},
        {"head_dim", record.problem.head_dim},     {"causal", record.problem.causal},
        {"dtype", to_string(record.problem.dtype)}};
    add_later_fields(problem, record.problem);
    Json entry = {
        {"card",
         {{"name", record.card.name},
          {"multiprocessors", record.card.multiprocessors},
          {"target", record.card.target}}},
        {"problem", std::move(problem)},
        {"bucket", to_string(bucket_of(record.problem))},
        {"kernel_family", to_string(record.config.family)},
        {"config",
         {{"block_q", record.config.block_q},
          {"block_kv", record.config.block_kv},
          {"warps", record.config.warps},
          {"stages", record.config.stages},
          {"sequence_lengths", to_string(record.config.sequence_lengths)},
          {"programmatic_dependent_launch", record.config.programmatic_dependent_launch}}},
        {"kernel_digest", record.kernel_digest},
        {"checked", record.checked},
        {"date", record.date},
        {"baseline_ms", rounded(record.baseline_milliseconds)},
        {"samples_ms", std::move(samples)}};
    for (const KernelFamily family : record.families) {
        entry["families"].push_back(to_string(family));
    }
    if (groups_heads(record.config.family)) {
        entry["config"]["heads_per_group"] = record.config.heads_per_group;
    }
    if (record.config.family == KernelFamily::mma_resident) {
        entry["config"]["converts_d_q"] = record.config.converts_d_q;
    }
    return entry;
}

/// A whole number of that field that fits; throws nlohmann's own exceptions, as all of these do.
template <typename Integer>
Integer number(const nlohmann::json& object, const char* field, Integer least) {
    const nlohmann::json& value = object.at(field);
    if (!value.is_number_integer()) {
        throw std::out_of_range(field);
    }
    const auto wide = value.get<std::int64_t>();
    if (wide < least || wide > std::numeric_limits<Integer>::max()) {
        throw std::out_of_range(field);
    }
    return static_cast<Integer>(wide);
}

/// One of the values, by its name.
template <typename Values>
auto named(const nlohmann::json& object, const char* field, const Values& values) {
    const auto name = object.at(field).get<std::string>();
    for (const auto value : values) {
        if (name == to_string(value)) {
            return value;
        }
    }
    throw std::out_of_range(field);
}

/// Nothing where there is no such field. A family that this build does not know has nothing to say
/// to it.
std::vector<KernelFamily> families_in(const nlohmann::json& entry) {
    std::vector<KernelFamily> families;
    if (const auto names = entry.find("families"); names != entry.end()) {
        for (const KernelFamily family : kernel_families()) {
            if (std::ranges::any_of(*names,
                                    [&](const auto& name) { return name == to_string(family); })) {
                families.push_back(family);
            }
        }
    }
    return families;
}

double milliseconds(const nlohmann::json& value, bool may_be_zero) {
    const auto time = value.get<double>();
    if (!std::isfinite(time) || time < 0 || (time == 0 && !may_be_zero)) {
        throw std::out_of_range("milliseconds");
    }
    return time;
}

Record record_of(const nlohmann::json& entry) {
    Record record;
    const nlohmann::json& card = entry.at("card");
    record.card = {.name = card.at("name").get<std::string>(),
                   .multiprocessors = number<int>(card, "multiprocessors", 0),
                   .target = card.at("target").get<std::string>()};
    const nlohmann::json& problem = entry.at("problem");
    const auto given = [&](const char* field, std::int64_t least) {
        return problem.contains(field) ? std::optional(number<std::int64_t>(problem, field, least))
                                       : std::nullopt;
    };
    record.problem = {
        .batch = number<std::int64_t>(problem, "batch", 1),
        .heads = number<std::int64_t>(problem, "heads", 1),
        .heads_kv = given("heads_kv", 1),
        .seqlen_q = number<std::int64_t>(problem, "seqlen_q", 1),
        .seqlen_kv = number<std::int64_t>(problem, "seqlen_kv", 1),
        .head_dim = number<std::int64_t>(problem, "head_dim", 1),
        .head_dim_v = given("head_dim_v", 1),
        .causal = problem.at("causal").get<bool>(),
        .window_left = given("window_left", 0),
        .window_right = given("window_right", 0),
        .dtype = named(problem, "dtype", std::array{DataType::bf16, DataType::fp16}),
    };
    if (problem.contains("mask_alignment")) {
        record.problem.mask_alignment =
            named(problem, "mask_alignment",
                  std::array{MaskAlignment::top_left, MaskAlignment::bottom_right});
    }
    if (problem.contains("gradient_type")) {
        record.problem.gradient_type =
            named(problem, "gradient_type", std::array{GradientType::input, GradientType::fp32});
    }
    if (problem.contains("accumulate_gradients")) {
        record.problem.accumulate_gradients = problem.at("accumulate_gradients").get<bool>();
    }
    if (problem.contains("deterministic")) {
        record.problem.deterministic = problem.at("deterministic").get<bool>();
    }
    const nlohmann::json& config = entry.at("config");
    record.config = {
        .family = named(entry, "kernel_family", kernel_families()),
        .block_q = number<int>(config, "block_q", 1),
        .block_kv = number<int>(config, "block_kv", 1),
        .warps = number<int>(config, "warps", 1),
        .stages = number<int>(config, "stages", 1),
        .sequence_lengths =
            named(config, "sequence_lengths",
                  std::array{SequenceLengths::run_time, SequenceLengths::compile_time}),
        .programmatic_dependent_launch = config.at("programmatic_dependent_launch").get<bool>(),
    };
    if (groups_heads(record.config.family)) {
        record.config.heads_per_group = number<int>(config, "heads_per_group", 1);
    }
    // Not in records from before there was the choice.
    if (config.contains("converts_d_q")) {
        record.config.converts_d_q = config.at("converts_d_q").get<bool>();
    }
    record.kernel_digest = entry.at("kernel_digest").get<std::string>();
    record.checked = entry.at("checked").get<bool>();
    record.date = entry.at("date").get<std::string>();
    record.families = families_in(entry);
    record.baseline_milliseconds = milliseconds(entry.at("baseline_ms"), true);
    const nlohmann::json& samples = entry.at("samples_ms");
    if (!samples.is_array() || samples.empty() || samples.size() > most_samples) {
        throw std::out_of_range("samples_ms");
    }
    for (const nlohmann::json& sample : samples) {
        record.samples_milliseconds.push_back(milliseconds(sample, false));
    }
    return record;
}

std::optional<Record> try_record_of(const nlohmann::json& entry) {
    try {
        return record_of(entry);
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    } catch (const std::out_of_range&) {
        return std::nullopt;
    }
}

template <typename Entry>
std::string line_of(const Entry& entry) {
    // Names come from drivers: text that is not UTF-8 must not cost the database.
    return entry.dump(-1, ' ', false, Entry::error_handler_t::replace);
}

}  // namespace

std::string to_json_text(const Database& database) {
    std::string lines;
    const auto add = [&](const std::string& line) { lines += (lines.empty() ? "" : ",\n") + line; };
    for (const Record& record : database.records()) {
        add(line_of(to_json(record)));
    }
    for (const nlohmann::json& entry : database.foreign()) {
        add(line_of(entry));
    }
    return first_line() + lines + std::string(last_line);
}

Database checked_from_json_text(std::string_view text, const std::string& name) {
    const std::string first = first_line();
    if (!text.starts_with(first) || !text.ends_with(last_line) ||
        text.size() < first.size() + last_line.size()) {
        return from_json_text(text, name).checked_only();  // Written by a person, or broken.
    }
    Database database;
    std::string_view rest = text.substr(first.size());
    rest.remove_suffix(last_line.size());
    while (!rest.empty()) {
        std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        if (line.ends_with(',')) {
            line.remove_suffix(1);
        }
        // A line that a person has changed may be of any form, and is parsed.
        if (line.find(unchecked_field) != std::string_view::npos) {
            continue;
        }
        const nlohmann::json entry = nlohmann::json::parse(line, nullptr, false);
        if (entry.is_discarded()) {
            return from_json_text(text, name).checked_only();
        }
        if (auto record = try_record_of(entry); record && record->checked) {
            database.merge_record(std::move(*record));
        }
    }
    return database;
}

Database from_json_text(std::string_view text, const std::string& name) {
    const auto refuse = [&](std::string_view what) {
        return Error(ErrorCode::file_error, fmt::format("tuning database '{}': {}", name, what));
    };
    const auto [document, problem] = parse_json(text);
    if (!problem.empty()) {
        throw refuse(problem);
    }
    if (!document.is_object()) {
        throw refuse("it is JSON, but no tuning database");
    }
    const auto format = document.find("format");
    const auto version = document.find("version");
    const auto records = document.find("records");
    if (format == document.end() || *format != format_name || version == document.end() ||
        records == document.end() || !records->is_array()) {
        throw refuse("it is JSON, but no tuning database");
    }
    if (*version != format_version) {
        throw OtherVersion(ErrorCode::file_error,
                           refuse("it is of a version that this build does not read").what());
    }
    Database database;
    for (const nlohmann::json& entry : *records) {
        if (auto record = try_record_of(entry)) {
            database.merge_record(std::move(*record));
        } else {
            database.keep_foreign(entry);
        }
    }
    return database;
}

}  // namespace backlight::tuning
