#include "emulation_arguments.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "subcommand.hpp"

namespace backlight::tool {

namespace {

std::uint64_t parse_seed(const std::string& text) {
    std::uint64_t seed = 0;
    const char* const end = text.data() + text.size();
    const auto [next, failure] = std::from_chars(text.data(), end, seed);
    if (failure != std::errc{} || next != end) {
        throw refused("seed", text, "a whole number from 0 to 18446744073709551615 (2^64 - 1)");
    }
    return seed;
}

}  // namespace

void EmulationArguments::add_to(CLI::App& command) {
    // CLI11 by itself would take -1, and what is too large, for another number.
    command.add_option("--seed", seed_, "Of the emulated device's schedules [1]");
    command.add_option("--grid-order", grid_order_,
                       "Of the emulated device's blocks: ascending, descending or random [random]");
    command.add_flag("--debug-kernels", debug_kernels_,
                     "Compile the emulated device's kernels for a debugger");
    command.add_flag("--bank-conflicts", bank_conflicts_,
                     "Count them on the emulated device, by place in the kernel");
}

DeviceChoice EmulationArguments::applied_to(DeviceChoice device) const {
    constexpr const char* rule =
        "left out with a CUDA device: it is an option of --device emulated";
    if (seed_ && !device.emulation) {
        throw refused("seed", *seed_, rule);
    }
    if (!grid_order_.empty() && !device.emulation) {
        throw refused("grid-order", grid_order_, rule);
    }
    if ((debug_kernels_ || bank_conflicts_) && !device.emulation) {
        throw refused(debug_kernels_ ? "debug-kernels" : "bank-conflicts", "given", rule);
    }
    if (seed_) {
        device.emulation->seed = parse_seed(*seed_);
    }
    if (!grid_order_.empty()) {
        device.emulation->grid_order = parse_grid_order(grid_order_);
    }
    if (device.emulation) {
        device.emulation->debug_kernels = debug_kernels_;
        device.emulation->count_bank_conflicts = bank_conflicts_;
    }
    return device;
}

}  // namespace backlight::tool
