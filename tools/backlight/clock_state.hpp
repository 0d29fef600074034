#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nvml.hpp"

namespace backlight::tool {

/// Clocks and power at one moment; empty where the driver does not tell.
struct ClockState {
    std::optional<double> sm_clock_mhz;
    std::optional<double> highest_sm_clock_mhz;
    std::optional<double> memory_clock_mhz;
    std::optional<double> power_watts;
    std::optional<double> power_limit_watts;
};

ClockState clock_state(const Nvml& nvml);

enum class ClockBehaviour {
    /// No readings.
    unknown,
    /// One clock throughout, below the card's highest: as a locked card has it.
    held,
    /// The card's highest clock throughout: locked, or free and limited by nothing.
    at_highest,
    /// More than one step between the lowest and the highest reading: not locked, or limited by
    /// power or heat below the clock that it is locked to.
    moving,
};

const char* to_string(ClockBehaviour behaviour) noexcept;

/// The SM clock as it was read while kernels ran.
struct ObservedClock {
    std::optional<double> lowest_mhz;
    std::optional<double> median_mhz;
    std::optional<double> highest_mhz;
    ClockBehaviour behaviour = ClockBehaviour::unknown;
};

/// `highest_of_card` is that of ClockState.
ObservedClock observed_clock(const std::vector<double>& readings,
                             std::optional<double> highest_of_card);

/// Whether two clocks are the same but for the step in which the driver sets them.
bool same_clock(double a, double b) noexcept;

/// What a person can run to set the card so, and to set it free afterwards. `bus_id` as NVML has
/// it; empty: the only GPU. This command runs none of them.
std::vector<std::string> locking_commands(const std::string& bus_id, int sm_clock_mhz,
                                          int power_limit_watts);

nlohmann::ordered_json to_json(const ClockState& state);
nlohmann::ordered_json to_json(const ObservedClock& clock);

}  // namespace backlight::tool
