#include "session/device_choice.hpp"

#include <fmt/format.h>

#include <charconv>

#include "backlight/error.hpp"
#include "session/gpu.hpp"

namespace backlight::tool {

using emulation::GridOrder;

DeviceChoice parse_device(std::string_view text) {
    if (text == "emulated") {
        return {.emulation = emulation::EmulationOptions{}};
    }
    DeviceChoice choice;
    const char* const end = text.data() + text.size();
    const auto [next, failure] = std::from_chars(text.data(), end, choice.ordinal);
    if (failure != std::errc{} || next != end) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("device is '{}': it must be the number of a CUDA device, or "
                                "emulated",
                                text));
    }
    return choice;
}

GridOrder parse_grid_order(std::string_view text) {
    for (const GridOrder order : {GridOrder::ascending, GridOrder::descending, GridOrder::random}) {
        if (text == to_string(order)) {
            return order;
        }
    }
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("grid-order is '{}': it must be ascending, descending or random", text));
}

const char* to_string(GridOrder order) noexcept {
    switch (order) {
        case GridOrder::ascending:
            return "ascending";
        case GridOrder::descending:
            return "descending";
        case GridOrder::random:
            return "random";
    }
    return "unknown";
}

std::unique_ptr<Session> open_session(const DeviceChoice& choice) {
    if (choice.emulation) {
        return std::make_unique<Session>(emulation::make_emulated_runtime(*choice.emulation));
    }
    RuntimeOptions options;
    options.device = choice.ordinal;
    try {
        return std::make_unique<Gpu>(options);
    } catch (const Error& error) {
        if (error.code() != ErrorCode::driver_not_found) {
            throw;
        }
        throw Error(error.code(),
                    fmt::format("{}\nWithout a GPU, --device emulated executes the kernels on this "
                                "machine's CPU.",
                                error.what()));
    }
}

}  // namespace backlight::tool
