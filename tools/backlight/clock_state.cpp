#include "clock_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench_report.hpp"

namespace backlight::tool {

ClockState clock_state(const Nvml& nvml) {
    return {.sm_clock_mhz = nvml.sm_clock_mhz(),
            .highest_sm_clock_mhz = nvml.highest_sm_clock_mhz(),
            .memory_clock_mhz = nvml.memory_clock_mhz(),
            .power_watts = nvml.power_watts(),
            .power_limit_watts = nvml.power_limit_watts()};
}

const char* to_string(ClockBehaviour behaviour) noexcept {
    switch (behaviour) {
        case ClockBehaviour::unknown:
            return "unknown";
        case ClockBehaviour::held:
            return "held";
        case ClockBehaviour::at_highest:
            return "at_highest";
        case ClockBehaviour::moving:
            return "moving";
    }
    return "unknown";
}

bool same_clock(double a, double b) noexcept {
    constexpr double step_mhz = 15;
    return std::abs(a - b) <= step_mhz;
}

ObservedClock observed_clock(const std::vector<double>& readings,
                             std::optional<double> highest_of_card) {
    if (readings.empty()) {
        return {};
    }
    const auto [lowest, highest] = std::ranges::minmax(readings);
    ObservedClock clock{.lowest_mhz = lowest,
                        .median_mhz = median(readings),
                        .highest_mhz = highest,
                        .behaviour = ClockBehaviour::moving};
    if (same_clock(lowest, highest)) {
        const bool at_highest = highest_of_card && same_clock(highest, *highest_of_card);
        clock.behaviour = at_highest ? ClockBehaviour::at_highest : ClockBehaviour::held;
    }
    return clock;
}

std::vector<std::string> locking_commands(const std::string& bus_id, int sm_clock_mhz,
                                          int power_limit_watts) {
    const std::string begin =
        bus_id.empty() ? "sudo nvidia-smi" : fmt::format("sudo nvidia-smi -i {}", bus_id);
    return {fmt::format("{} -pl {}", begin, power_limit_watts),
            fmt::format("{} -lgc {},{}", begin, sm_clock_mhz, sm_clock_mhz),
            fmt::format("{} -rgc", begin)};
}

nlohmann::ordered_json to_json(const ClockState& state) {
    return {{"sm_clock_mhz", or_null(state.sm_clock_mhz)},
            {"highest_sm_clock_mhz", or_null(state.highest_sm_clock_mhz)},
            {"memory_clock_mhz", or_null(state.memory_clock_mhz)},
            {"power_watts", or_null(state.power_watts)},
            {"power_limit_watts", or_null(state.power_limit_watts)}};
}

nlohmann::ordered_json to_json(const ObservedClock& clock) {
    return {{"lowest_mhz", or_null(clock.lowest_mhz)},
            {"median_mhz", or_null(clock.median_mhz)},
            {"highest_mhz", or_null(clock.highest_mhz)},
            {"behaviour", to_string(clock.behaviour)}};
}

}  // namespace backlight::tool
