#include "cache_explain.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "backlight/error.hpp"
#include "command.hpp"
#include "compiler/nearest_entry.hpp"
#include "specialisation_text.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

constexpr const char* compiler_field = "compiler";

constexpr std::size_t longest_value = 100;

bool has_lines(const cache::FieldDifference& difference) {
    return difference.wanted && difference.found &&
           (difference.wanted->find('\n') != std::string::npos ||
            difference.found->find('\n') != std::string::npos);
}

struct DifferentLine {
    bool wanted = false;
    std::string_view text;
};

/// Lines that only one of the texts has, in place: those of a longest common subsequence are left
/// out.
std::vector<DifferentLine> different_lines(const std::vector<std::string_view>& wanted,
                                           const std::vector<std::string_view>& found) {
    // common[i][j]: the length of what the rests from line i and from line j share.
    std::vector<std::vector<std::size_t>> common(wanted.size() + 1,
                                                 std::vector<std::size_t>(found.size() + 1, 0));
    for (std::size_t i = wanted.size(); i-- > 0;) {
        for (std::size_t j = found.size(); j-- > 0;) {
            common[i][j] = wanted[i] == found[j] ? common[i + 1][j + 1] + 1
                                                 : std::max(common[i + 1][j], common[i][j + 1]);
        }
    }
    std::vector<DifferentLine> lines;
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < wanted.size() || j < found.size()) {
        if (i < wanted.size() && j < found.size() && wanted[i] == found[j]) {
            ++i;
            ++j;
        } else if (j == found.size() ||
                   (i < wanted.size() && common[i + 1][j] >= common[i][j + 1])) {
            lines.push_back({true, wanted[i++]});
        } else {
            lines.push_back({false, found[j++]});
        }
    }
    return lines;
}

/// The lines are the difference's own, which must live as long.
std::vector<DifferentLine> different_lines(const cache::FieldDifference& difference) {
    const auto lines = [](const std::optional<std::string>& value) {
        return value ? lines_of(*value) : std::vector<std::string_view>();
    };
    return different_lines(lines(difference.wanted), lines(difference.found));
}

/// A field, or of one with several lines what these set: constants of a specialisation, options.
std::vector<std::string> differing_names(const cache::FieldDifference& difference) {
    if (!has_lines(difference)) {
        return {difference.name};
    }
    std::vector<std::string> names;
    for (const DifferentLine& line : different_lines(difference)) {
        const std::optional<Constant> constant = constant_of(line.text);
        const std::string name(constant ? constant->name
                               : line.text.starts_with("--")
                                   ? line.text.substr(0, line.text.find('='))
                                   : std::string_view(difference.name));
        if (std::ranges::find(names, name) == names.end()) {
            names.push_back(name);
        }
    }
    return names;
}

/// Of entries that differ in as few fields, the one that differs in the fewest lines of them.
std::optional<cache::NearEntry> nearest_entry(const cache::LayeredCache& cache,
                                              const cache::Key& key) {
    constexpr std::size_t most = 1000;
    std::vector<cache::NearEntry> near = compiler::nearest_entries(cache, key, most);
    const auto lines = [](const cache::NearEntry& entry) {
        std::size_t count = 0;
        for (const cache::FieldDifference& difference : entry.differences) {
            count += different_lines(difference).size();
        }
        return count;
    };
    const auto nearest = std::ranges::min_element(near, {}, lines);
    return nearest == near.end() ? std::nullopt : std::optional(std::move(*nearest));
}

std::string summary_of(const std::vector<cache::FieldDifference>& differences) {
    std::vector<std::string> names;
    for (const cache::FieldDifference& difference : differences) {
        const std::vector<std::string> more = differing_names(difference);
        names.insert(names.end(), more.begin(), more.end());
    }
    return names.empty() ? "which could not be used: it differs in no field"
                         : fmt::format("which differs in {} field{}: {}", names.size(),
                                       names.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

/// Why entries of any version of NVRTC are as good as others; nothing where only those of the one
/// at hand count.
std::optional<std::string> reason_for_any_version(compiler::KernelStore& store) {
    if (store.compile_policy() == CompilePolicy::forbid) {
        return "the policy forbids to compile";
    }
    try {
        store.nvrtc();
        return std::nullopt;
    } catch (const Error& error) {
        return error.what();
    }
}

std::string miss_text(const Explanation& miss, const compiler::KernelStore& store) {
    std::string text = fmt::format("\n{} {} {}: no layer has it\n", miss.kernel.request.target.name,
                                   miss.kernel.request.entry, miss.kernel.serves);
    if (!miss.nearest) {
        return text + "    there are no entries to compare with\n";
    }
    const auto& differences = miss.nearest->differences;
    text +=
        fmt::format("    nearest: {} in {}, {}\n", miss.nearest->stored.key.digest().substr(0, 12),
                    store.layer_names()[miss.nearest->layer], summary_of(differences));
    for (const cache::FieldDifference& difference : differences) {
        text += difference_text(difference);
    }
    if (differences.size() == 1 && differences.front().name == compiler_field) {
        text +=
            "    a hit all the same where the policy forbids to compile, or where there is no "
            "NVRTC\n";
    }
    return text;
}

}  // namespace

std::string difference_text(const cache::FieldDifference& difference) {
    const auto one_line = [](const std::optional<std::string>& value) {
        return value ? fmt::format("'{}'", shortened(*value, longest_value)) : "no such field";
    };
    if (has_lines(difference)) {
        std::string text = fmt::format("    {}:\n", difference.name);
        for (const DifferentLine& line : different_lines(difference)) {
            text += fmt::format("      {} {}\n", line.wanted ? "wanted" : "found ",
                                shortened(line.text, longest_value));
        }
        return text;
    }
    return fmt::format("    {}: wanted {}, found {}\n", difference.name,
                       one_line(difference.wanted), one_line(difference.found));
}

std::vector<Explanation> explain_kernels(const std::vector<SelectedChain>& chains,
                                         const compiler::KernelStore& store) {
    std::vector<Explanation> explanations;
    for (SelectedKernel& kernel : distinct_kernels(
             chains, [&](const auto& request) { return store.key_to_load(request); })) {
        Explanation explanation{.kernel = std::move(kernel)};
        explanation.layer = store.cache().locate(explanation.kernel.key);
        if (!explanation.layer) {
            explanation.nearest = nearest_entry(store.cache(), explanation.kernel.key);
        }
        explanations.push_back(std::move(explanation));
    }
    return explanations;
}

int explain_cache(const CacheLocation& location, const SelectionOptions& selection,
                  std::ostream& out) {
    location.require_there();
    compiler::KernelStore store(location.store_options());
    const std::vector<SelectedChain> chains = select_chains(selection, store);
    const std::vector<Explanation> explanations = explain_kernels(chains, store);
    TextTable table({"target", "kernel", "serves", "would", "layer"}, 5);
    std::string misses;
    for (const Explanation& explanation : explanations) {
        table.add({explanation.kernel.request.target.name, explanation.kernel.request.entry,
                   explanation.kernel.serves, explanation.layer ? "hit" : "miss",
                   explanation.layer ? store.layer_names()[*explanation.layer] : "-"});
        if (!explanation.layer) {
            misses += miss_text(explanation, store);
        }
    }
    out << table.text() << misses;
    if (const auto reason = reason_for_any_version(store)) {
        out << fmt::format("\nentries of any version of NVRTC count: {}\n", *reason);
    } else {
        out << fmt::format("\nNVRTC {}\n", store.nvrtc().version());
    }
    for (const cache::LayerState& state : store.cache().states()) {
        if (!state.refusal.empty()) {
            out << fmt::format("a layer is not used: {}\n", state.refusal);
        }
    }
    return misses.empty() ? exit_success : exit_failure;
}

}  // namespace backlight::tool
