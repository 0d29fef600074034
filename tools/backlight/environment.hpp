#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "nvml.hpp"
#include "session/gpu.hpp"

namespace backlight::tool {

/// The machine and the build.
struct Environment {
    std::string gpu;
    std::string target;
    int multiprocessors = 0;
    std::size_t memory_bytes = 0;
    std::size_t l2_bytes = 0;
    std::optional<double> highest_sm_clock_mhz;
    std::optional<double> memory_clock_mhz;
    std::optional<double> power_limit_watts;
    std::string driver_version;
    /// Of the driver's interface, for example "13.0".
    std::string cuda_version;
    std::string nvrtc_version;
    std::string version;
    std::string git_revision;
    /// UTC, ISO 8601.
    std::string date;
};

Environment environment_of(Gpu& gpu, const Nvml& nvml);

nlohmann::ordered_json to_json(const Environment& environment);

/// The value, or null.
nlohmann::ordered_json or_null(std::optional<double> value);

}  // namespace backlight::tool
