#include "cache_report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "byte_text.hpp"
#include "command.hpp"
#include "json_file.hpp"
#include "json_text.hpp"
#include "specialisation_text.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

using Json = nlohmann::ordered_json;
using TimePoint = std::chrono::system_clock::time_point;

std::string age_text(const std::optional<TimePoint>& when) {
    if (!when) {
        return "-";
    }
    const auto age =
        std::chrono::duration_cast<std::chrono::minutes>(std::chrono::system_clock::now() - *when)
            .count();
    constexpr std::int64_t hour = 60;
    constexpr std::int64_t day = 24 * hour;
    if (age < 1) {
        return "now";
    }
    return age < 2 * hour  ? fmt::format("{} min ago", age)
           : age < 2 * day ? fmt::format("{} h ago", age / hour)
                           : fmt::format("{} d ago", age / day);
}

std::string time_text(TimePoint when) {
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}Z",
                       fmt::gmtime(std::chrono::system_clock::to_time_t(when)));
}

bool is_there(const cache::LayerState& state) {
    std::error_code unknown;
    return state.kind == "pack in memory" ||
           (state.kind == "directory" ? std::filesystem::is_directory(state.location, unknown)
                                      : std::filesystem::exists(state.location, unknown));
}

/// What a layer turned out to be, once it had been looked at.
struct LayerSummary {
    std::string name;
    cache::LayerState state;
    bool there = false;
    std::size_t entries = 0;
    std::uint64_t bytes = 0;
    std::size_t bad = 0;
    std::optional<TimePoint> last_used;
    std::string problem;

    const char* standing() const {
        if (!state.refusal.empty()) {
            return "refused";
        }
        return there ? "trusted" : "not there";
    }
};

std::vector<LayerSummary> summaries_of(const compiler::KernelStore& store) {
    std::vector<LayerSummary> summaries;
    for (std::size_t i = 0; i < store.cache().layer_count(); ++i) {
        const cache::Listing listing = store.cache().layer(i).list(cache::Check::heads);
        LayerSummary summary{.name = store.layer_names()[i],
                             .entries = listing.entries.size(),
                             .bad = listing.bad.size(),
                             .problem = listing.problem};
        for (const cache::StoredEntry& entry : listing.entries) {
            summary.bytes += entry.bytes;
            summary.last_used = std::max(summary.last_used, entry.last_used);
        }
        summaries.push_back(std::move(summary));
    }
    // After the listings: what is refused is known once it has been looked at.
    const std::vector<cache::LayerState> states = store.cache().states();
    for (std::size_t i = 0; i < summaries.size(); ++i) {
        summaries[i].state = states[i];
        summaries[i].there = is_there(states[i]);
    }
    return summaries;
}

Json to_json(const LayerSummary& layer) {
    Json object = {{"name", layer.name},        {"path", layer.state.location.string()},
                   {"kind", layer.state.kind},  {"writable", layer.state.writable},
                   {"state", layer.standing()}, {"entries", layer.entries},
                   {"bytes", layer.bytes},      {"bad", layer.bad}};
    object["last_used"] = layer.last_used ? Json(time_text(*layer.last_used)) : Json(nullptr);
    object["problem"] = layer.state.refusal.empty() ? layer.problem : layer.state.refusal;
    return object;
}

std::string field_of(const cache::Key& key, std::string_view name) {
    for (cache::KeyField& field : key.fields()) {
        if (field.name == name) {
            return std::move(field.value);
        }
    }
    return {};
}

/// The number in an entry's metadata, as text; "-" where it is not there.
std::string figure_of(const nlohmann::json& metadata, const char* name) {
    const auto found = metadata.is_object() ? metadata.find(name) : metadata.end();
    return found != metadata.end() && found->is_number() ? found->dump() : "-";
}

/// JSON as such, other text as text.
Json parsed(const std::string& text) {
    const auto [value, problem] = parse_json(text);
    return problem.empty() ? Json(value) : Json(text);
}

bool matches(const cache::StoredEntry& entry, const ListOptions& options,
             const std::string& target) {
    return (options.kernel.empty() ||
            field_of(entry.key, "entry").find(options.kernel) != std::string::npos ||
            field_of(entry.key, "source").find(options.kernel) != std::string::npos) &&
           (target.empty() || field_of(entry.key, "target") == target);
}

TextTable entry_table(bool whole) {
    return whole ? TextTable({"entry", "layer", "target", "kernel", "constants", "registers",
                              "spilled", "cubin", "last used"},
                             5)
                 : TextTable({"entry", "target", "kernel", "registers", "spilled", "cubin",
                              "last used", "layer"},
                             3);
}

void add_whole(TextTable& table, const cache::StoredEntry& entry, const std::string& layer) {
    const auto metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
    table.add(
        {entry.key.digest(), layer, field_of(entry.key, "target"), field_of(entry.key, "entry"),
         specialisation_summary(field_of(entry.key, "specialisation")),
         figure_of(metadata, "registers"), figure_of(metadata, "spill_store_bytes"),
         std::to_string(entry.payload_bytes), entry.last_used ? time_text(*entry.last_used) : "-"});
}

/// Within the width of a terminal: the layer by its number, the constants below.
void add_narrow(TextTable& table, const cache::StoredEntry& entry, std::size_t layer) {
    constexpr std::size_t digits = 8;
    constexpr std::size_t longest_name = 30;
    const auto metadata = nlohmann::json::parse(entry.metadata, nullptr, false);
    table.add({entry.key.digest().substr(0, digits), field_of(entry.key, "target"),
               shortened(field_of(entry.key, "entry"), longest_name),
               figure_of(metadata, "registers"), figure_of(metadata, "spill_store_bytes"),
               byte_text(entry.payload_bytes), age_text(entry.last_used), std::to_string(layer)});
    table.add_below(specialisation_summary(field_of(entry.key, "specialisation")));
}

Json to_json(const cache::StoredEntry& entry, const std::string& layer) {
    Json object = {{"digest", entry.key.digest()},
                   {"layer", layer},
                   {"path", entry.path.string()},
                   {"bytes", entry.bytes},
                   {"payload_bytes", entry.payload_bytes}};
    object["last_used"] = entry.last_used ? Json(time_text(*entry.last_used)) : Json(nullptr);
    object["key"] = Json::object();
    for (const cache::KeyField& field : entry.key.fields()) {
        object["key"][field.name] = field.value;
    }
    object["metadata"] = parsed(entry.metadata);
    object["provenance"] = parsed(entry.provenance);
    return object;
}

}  // namespace

void show_cache(const CacheLocation& location, const std::string& json, std::ostream& out) {
    check_json_path(json);
    const compiler::KernelStoreOptions options = location.store_options();
    const compiler::KernelStore store(options);
    const std::vector<LayerSummary> layers = summaries_of(store);
    if (!json.empty()) {
        Json document = {{"byte_limit", options.cache_byte_limit}, {"layers", Json::array()}};
        for (const LayerSummary& layer : layers) {
            document["layers"].push_back(to_json(layer));
        }
        write_json(json, document, out);
        if (json == "-") {
            return;
        }
    }
    TextTable table({"layer", "kind", "state", "entries", "bytes", "bad", "last used"}, 3);
    std::string notes;
    for (const LayerSummary& layer : layers) {
        table.add({layer.name, layer.state.kind + (layer.state.writable ? ", written" : ""),
                   layer.standing(), std::to_string(layer.entries), byte_text(layer.bytes),
                   std::to_string(layer.bad), age_text(layer.last_used)});
        if (!layer.state.refusal.empty()) {
            notes += fmt::format("{}\n", layer.state.refusal);
        } else if (!layer.problem.empty()) {
            notes += fmt::format("{}: {}\n", layer.name, layer.problem);
        }
    }
    out << table.text() << notes << '\n';
    if (store.cache().writable() == nullptr) {
        out << "no directory: compiled kernels are kept in memory only\n";
    } else {
        out << fmt::format(
            "limit {}, {:.0f} % used\n", byte_text(options.cache_byte_limit),
            100.0 * static_cast<double>(layers.back().bytes) /
                static_cast<double>(std::max<std::uint64_t>(options.cache_byte_limit, 1)));
    }
}

void list_cache(const CacheLocation& location, const ListOptions& options, std::ostream& out) {
    const std::string target =
        options.target.empty() ? "" : device::target_by_name(options.target).name;
    location.require_there();
    check_json_path(options.json);
    const compiler::KernelStore store(location.store_options());
    TextTable table = entry_table(options.whole);
    Json document = Json::array();
    std::size_t entries = 0;
    std::uint64_t bytes = 0;
    std::string notes;
    for (std::size_t i = 0; i < store.cache().layer_count(); ++i) {
        const std::string& layer = store.layer_names()[i];
        const cache::Listing listing = store.cache().layer(i).list(cache::Check::heads);
        for (const cache::StoredEntry& entry : listing.entries) {
            if (!matches(entry, options, target)) {
                continue;
            }
            if (options.whole) {
                add_whole(table, entry, layer);
            } else {
                add_narrow(table, entry, i + 1);
            }
            document.push_back(to_json(entry, layer));
            ++entries;
            bytes += entry.bytes;
        }
        if (!options.whole) {
            notes += fmt::format("layer {}: {}\n", i + 1, layer);
        }
        if (!listing.problem.empty()) {
            notes += fmt::format("{}: {}\n", layer, listing.problem);
        }
        if (!listing.bad.empty()) {
            notes += fmt::format("{}: {} bad entries, which `backlight cache verify` tells\n",
                                 layer, listing.bad.size());
        }
    }
    if (!options.json.empty()) {
        write_json(options.json, document, out);
    }
    if (options.json != "-") {
        out << table.text() << fmt::format("\n{} entries, {}\n", entries, byte_text(bytes))
            << notes;
    }
}

int verify_cache(const CacheLocation& location, bool remove_bad, std::ostream& out) {
    location.require_there();
    compiler::KernelStore store(location.store_options());
    bool good = true;
    for (std::size_t i = 0; i < store.cache().layer_count(); ++i) {
        const std::string& name = store.layer_names()[i];
        const bool writable =
            store.cache().writable() != nullptr && i + 1 == store.cache().layer_count();
        const cache::Listing listing = writable
                                           ? store.cache().writable()->verify(remove_bad)
                                           : store.cache().layer(i).list(cache::Check::everything);
        const std::string refusal = store.cache().layer(i).refusal();
        if (refusal.empty() && listing.problem.empty() && !is_there(store.cache().states()[i])) {
            out << fmt::format("{}: not there\n", name);
            continue;
        }
        std::uint64_t bytes = 0;
        for (const cache::StoredEntry& entry : listing.entries) {
            bytes += entry.bytes;
        }
        out << fmt::format("{}: {} good, {}; {} bad\n", name, listing.entries.size(),
                           byte_text(bytes), listing.bad.size());
        for (const cache::BadEntry& bad : listing.bad) {
            out << fmt::format("bad: '{}': {}{}\n", bad.path.string(), bad.reason,
                               bad.removed              ? "; removed"
                               : writable && remove_bad ? "; not removed"
                                                        : "");
        }
        if (!refusal.empty() || !listing.problem.empty()) {
            out << fmt::format("not checked: {}\n", !refusal.empty() ? refusal : listing.problem);
        }
        good = good && listing.bad.empty() && listing.problem.empty() && refusal.empty();
    }
    return good ? exit_success : exit_failure;
}

int prune_cache(const CacheLocation& location, const cache::PruneOptions& options,
                std::ostream& out) {
    location.require_there();
    compiler::KernelStore store(location.store_options());
    if (store.cache().writable() == nullptr) {
        throw refused("cache", "", "a directory: there is no default one without HOME");
    }
    const cache::PruneReport report = store.cache().writable()->prune(options);
    out << fmt::format("{}: removed {} entries, {}, and {} leftovers of dead processes\n",
                       store.cache().writable()->directory().string(), report.entries,
                       byte_text(report.bytes), report.leftovers);
    if (!report.problem.empty()) {
        out << fmt::format("not all was done: {}\n", report.problem);
        return exit_failure;
    }
    return exit_success;
}

}  // namespace backlight::tool
