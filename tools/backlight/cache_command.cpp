#include "cache_command.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "backlight/error.hpp"
#include "cache_explain.hpp"
#include "cache_location.hpp"
#include "cache_report.hpp"
#include "command.hpp"
#include "kernel_selection.hpp"

namespace backlight::tool {

namespace {

struct Unit {
    char letter;
    std::uint64_t factor;
};

/// A whole number and one of the letters, or none where one of them is '\0'.
std::optional<std::uint64_t> with_unit(std::string_view text, std::span<const Unit> units,
                                       std::uint64_t largest) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [next, failure] = std::from_chars(text.data(), end, number);
    if (failure != std::errc{} || end - next > 1) {
        return std::nullopt;
    }
    const char letter = next == end ? '\0' : *next;
    for (const Unit& unit : units) {
        if (unit.letter == letter && number <= largest / unit.factor) {
            return number * unit.factor;
        }
    }
    return std::nullopt;
}

/// Adds one of the subcommands of `cache`; `act` is asked for the exit code.
CLI::App* add_action(const Setup& setup, CLI::App& parent, const char* name,
                     const char* description, Action act) {
    CLI::App* command = parent.add_subcommand(name, description);
    command->callback([setup, act = std::move(act)] { setup.action = act; });
    return command;
}

void add_info(const Setup& setup, CLI::App& parent) {
    struct Arguments {
        CacheLocation location;
        std::string json;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command =
        add_action(setup, parent, "info", "The layers: where, whether they are used, how full",
                   [setup, arguments] {
                       show_cache(arguments->location, arguments->json, setup.out);
                       return exit_success;
                   });
    arguments->location.add_to(*command);
    command->add_option("--json", arguments->json, "File; - for standard output");
}

void add_list(const Setup& setup, CLI::App& parent) {
    struct Arguments {
        CacheLocation location;
        ListOptions options;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command =
        add_action(setup, parent, "list", "The entries of all layers", [setup, arguments] {
            list_cache(arguments->location, arguments->options, setup.out);
            return exit_success;
        });
    arguments->location.add_to(*command);
    command->add_option("--kernel", arguments->options.kernel,
                        "Only those with this in the name of their entry point or source");
    command->add_option("--target", arguments->options.target, "Only those for this target");
    command->add_flag("--long", arguments->options.whole,
                      "Whole digests, paths, constants, bytes and dates, however wide the lines");
    command->add_option("--json", arguments->options.json, "File; - for standard output");
}

void add_verify_cache(const Setup& setup, CLI::App& parent) {
    struct Arguments {
        CacheLocation location;
        bool remove_bad = false;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command =
        add_action(setup, parent, "verify", "Read and check every entry; exit code 1 if one is bad",
                   [setup, arguments] {
                       return verify_cache(arguments->location, arguments->remove_bad, setup.out);
                   });
    arguments->location.add_to(*command);
    command->add_flag("--remove-bad", arguments->remove_bad,
                      "Remove bad entries of the layer that is written");
}

void add_prune(const Setup& setup, CLI::App& parent) {
    struct Arguments {
        CacheLocation location;
        std::string unused_for;
        std::string to_bytes;
        bool all = false;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = add_action(
        setup, parent, "prune",
        "Remove entries of the layer that is written: those that an option names",
        [setup, arguments] {
            if (arguments->unused_for.empty() && arguments->to_bytes.empty() && !arguments->all) {
                throw Error(
                    ErrorCode::invalid_argument,
                    "prune is given nothing to go by, and removes nothing: it must be told what to "
                    "remove, by --unused-for AGE (what was not used for so long, for example 30d), "
                    "--to-bytes SIZE (the least recently used until the rest fits, for example "
                    "200M) or --all (every entry)");
            }
            cache::PruneOptions options;
            if (!arguments->unused_for.empty()) {
                options.unused_for = parse_age(arguments->unused_for);
            }
            if (!arguments->to_bytes.empty()) {
                options.to_bytes = parse_bytes(arguments->to_bytes);
            }
            if (arguments->all) {
                options.to_bytes = 0;
            }
            return prune_cache(arguments->location, options, setup.out);
        });
    arguments->location.add_to(*command);
    command->add_option("--unused-for", arguments->unused_for,
                        "What was not used for so long: 90s, 15m, 12h, 30d");
    command->add_option("--to-bytes", arguments->to_bytes,
                        "The least recently used until the rest fits: 1000000, 200M, 1G");
    command->add_flag("--all", arguments->all, "Every entry");
}

void add_explain(const Setup& setup, CLI::App& parent) {
    struct Arguments {
        CacheLocation location;
        SelectionArguments selection;
    };
    const auto arguments = std::make_shared<Arguments>();
    CLI::App* command = add_action(
        setup, parent, "explain",
        "Whether problems would hit, and if not, what the nearest entry differs in; exit code 1 "
        "if a kernel would miss",
        [setup, arguments] {
            return explain_cache(arguments->location, arguments->selection.resolve(), setup.out);
        });
    arguments->location.add_to(*command);
    arguments->selection.add_to(*command);
}

}  // namespace

std::chrono::seconds parse_age(std::string_view text) {
    constexpr std::array units = {Unit{'s', 1}, Unit{'m', 60}, Unit{'h', 3600}, Unit{'d', 86400}};
    // A century: no clock arithmetic overflows with it.
    constexpr std::uint64_t largest = std::uint64_t{100} * 366 * 86400;
    const auto seconds = with_unit(text, units, largest);
    if (!seconds) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("unused-for is '{}': it must be a whole number with s, m, h or d, "
                                "for example 30d, and at most a century",
                                text));
    }
    return std::chrono::seconds(*seconds);
}

std::uint64_t parse_bytes(std::string_view text) {
    constexpr std::array units = {Unit{'\0', 1}, Unit{'K', std::uint64_t{1} << 10U},
                                  Unit{'M', std::uint64_t{1} << 20U},
                                  Unit{'G', std::uint64_t{1} << 30U}};
    const auto bytes = with_unit(text, units, std::numeric_limits<std::uint64_t>::max());
    if (!bytes) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("to-bytes is '{}': it must be a whole number, alone or with K, M "
                                "or G, for example 200M",
                                text));
    }
    return *bytes;
}

void add_cache(const Setup& setup) {
    CLI::App* command = setup.app.add_subcommand(
        "cache", "Look at the cubin cache, check it, empty it, ask what it would serve");
    command->require_subcommand(1);
    add_info(setup, *command);
    add_list(setup, *command);
    add_verify_cache(setup, *command);
    add_prune(setup, *command);
    add_explain(setup, *command);
}

}  // namespace backlight::tool
