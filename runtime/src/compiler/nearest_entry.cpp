#include "compiler/nearest_entry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "device/target.hpp"

namespace backlight::compiler {

namespace {

/// More lines, or longer ones, are no help in a message.
constexpr std::size_t most_lines = 4;
constexpr std::size_t longest_line = 160;

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        if (end > 0) {
            lines.push_back(text.substr(0, end));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

/// The lines of `text` that `other` has not.
std::string own_lines(const std::optional<std::string>& text,
                      const std::optional<std::string>& other) {
    if (!text) {
        return "no such field";
    }
    const std::vector<std::string_view> known =
        other ? lines_of(*other) : std::vector<std::string_view>();
    std::vector<std::string_view> own;
    for (const std::string_view line : lines_of(*text)) {
        if (std::ranges::find(known, line) == known.end()) {
            own.push_back(line.substr(0, longest_line));
        }
    }
    if (own.empty()) {
        return text->empty() ? "nothing" : "the same lines";
    }
    const std::size_t more = own.size() > most_lines ? own.size() - most_lines : 0;
    own.resize(own.size() - more);
    return fmt::format("{}{}", fmt::join(own, " | "),
                       more > 0 ? fmt::format(" | and {} lines more", more) : "");
}

bool is_emulated(const cache::Key& key) {
    const std::vector<cache::KeyField> fields = key.fields();
    return std::ranges::any_of(fields, [](const cache::KeyField& field) {
        return field.name == "target" && field.value.starts_with(device::emulated_target_prefix);
    });
}

}  // namespace

std::vector<cache::NearEntry> nearest_entries(const cache::LayeredCache& cache,
                                              const cache::Key& key, std::size_t most) {
    return cache.nearest(key, most, [emulated = is_emulated(key)](const cache::Key& other) {
        return is_emulated(other) == emulated;
    });
}

std::string describe(const cache::FieldDifference& difference) {
    return fmt::format("{}: wanted {}, found {}", difference.name,
                       own_lines(difference.wanted, difference.found),
                       own_lines(difference.found, difference.wanted));
}

std::string describe_nearest(const cache::LayeredCache& cache, const cache::Key& key,
                             std::span<const std::string> layer_names) {
    const std::vector<cache::NearEntry> nearest = nearest_entries(cache, key, 1);
    if (nearest.empty()) {
        return "The cache has no entries to compare with.";
    }
    const cache::NearEntry& near = nearest.front();
    if (near.differences.empty()) {
        return fmt::format("An entry of this very key is in {}, and could not be used.",
                           layer_names[near.layer]);
    }
    std::vector<std::string> differences;
    for (const cache::FieldDifference& difference : near.differences) {
        differences.push_back(describe(difference));
    }
    return fmt::format("The nearest entry, in {}, differs in {}.", layer_names[near.layer],
                       fmt::join(differences, "; "));
}

std::string describe_layers(const cache::LayeredCache& cache,
                            std::span<const std::string> layer_names) {
    const std::vector<cache::LayerState> states = cache.states();
    if (states.empty()) {
        return "none";
    }
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < states.size(); ++i) {
        const std::string location = states[i].location.string();
        std::string text = layer_names[i];
        if (location != text) {
            text += fmt::format(" ({})", location);
        }
        if (!states[i].refusal.empty()) {
            text += fmt::format(" (not used: {})", states[i].refusal);
        }
        texts.push_back(std::move(text));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace backlight::compiler
