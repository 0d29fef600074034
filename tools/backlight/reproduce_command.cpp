#include "reproduce_command.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "reproduce.hpp"

namespace backlight::tool {

namespace {

constexpr std::array<std::string_view, 4> own = {"--python", "--peers-script", "--peers-bridge",
                                                 "--no-peers"};
/// What is left to choose where a table says what is measured.
constexpr std::array<std::string_view, 7> free_options = {
    "--reproduce", "--kernel", "--repeats", "--regime", "--json", "--no-matmul", "--direction"};

}  // namespace

void ReproduceArguments::add_to(CLI::App& command) {
    command.add_option("--reproduce", table_,
                       "article: its table, with every v* preset and, by PyTorch, cuDNN and "
                       "FlashAttention-2, into one JSON [backlight_article.json]");
    command.add_option("--python", peers_.python,
                       "For --reproduce: one that has PyTorch [BACKLIGHT_PYTHON, else python3]");
    command.add_option("--peers-script", peers_.script,
                       "For --reproduce: bench_peers.py [the installed one, else the sources']");
    command.add_option("--peers-bridge", peers_.bridge,
                       "For --reproduce: libbacklight_peers.so [installed, else beside this]");
    command.add_flag("--no-peers", no_peers_, "For --reproduce: our kernels alone");
}

void ReproduceArguments::check(const CLI::App& command) const {
    const bool reproduces = command.count("--reproduce") > 0;
    if (reproduces) {
        published_table(table_);
    }
    for (const CLI::Option* option : command.get_options()) {
        const std::string name = option->get_name();
        const bool is_own = std::ranges::count(own, name) > 0;
        if (option->count() == 0 || (reproduces ? is_own : !is_own) ||
            std::ranges::count(free_options, name) > 0) {
            continue;
        }
        throw refused(name.substr(name.find_first_not_of('-')).c_str(),
                      fmt::format("{}", fmt::join(option->results(), " ")),
                      reproduces ? "left out with --reproduce, whose table settles it"
                                 : "left out without --reproduce, whose peers it is about");
    }
}

bool ReproduceArguments::run(const Setup& setup, const BenchOptions& bench) {
    if (setup.device.emulation) {
        throw refused("device", "emulated",
                      "a CUDA device with --reproduce: the published shape is far too large for "
                      "the emulated one, and how long that takes says nothing about a GPU; "
                      "`verify --device emulated` checks kernels at small shapes");
    }
    ReproduceOptions options{.device = setup.device.ordinal,
                             .kernels = bench.kernels,
                             .repeats = bench.repeats,
                             .cool = bench.cool,
                             .matmul = bench.matmul,
                             .peers = peers_};
    options.peers.wanted = !no_peers_;
    if (!bench.json.empty()) {
        options.json = bench.json;
    }
    return reproduce(published_table(table_), options, setup.out);
}

}  // namespace backlight::tool
