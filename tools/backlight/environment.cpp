#include "environment.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "runtime_implementation.hpp"
#include "version.hpp"

namespace backlight::tool {

Environment environment_of(Gpu& gpu, const Nvml& nvml) {
    const device::DeviceProperties& properties = gpu.device().properties();
    Environment environment{
        .gpu = properties.name,
        .target = properties.target.name,
        .multiprocessors = properties.multiprocessors,
        .memory_bytes = properties.memory_bytes,
        .l2_bytes = properties.l2_bytes,
        .highest_sm_clock_mhz = nvml.highest_sm_clock_mhz(),
        .memory_clock_mhz = nvml.memory_clock_mhz(),
        .power_limit_watts = nvml.power_limit_watts(),
        .driver_version = nvml.driver_version(),
        .version = std::string(version()),
        .git_revision = std::string(git_revision()),
        .date = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))};
    int cuda = 0;
    gpu.driver().check(gpu.driver().cuDriverGetVersion(&cuda), "read its version");
    environment.cuda_version = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10);
    environment.nvrtc_version = gpu.runtime().implementation().store().nvrtc().version();
    return environment;
}

nlohmann::ordered_json or_null(std::optional<double> value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json to_json(const Environment& environment) {
    return {
        {"gpu",
         {{"name", environment.gpu},
          {"target", environment.target},
          {"multiprocessors", environment.multiprocessors},
          {"memory_bytes", environment.memory_bytes},
          {"l2_bytes", environment.l2_bytes},
          {"highest_sm_clock_mhz", or_null(environment.highest_sm_clock_mhz)},
          {"memory_clock_mhz", or_null(environment.memory_clock_mhz)},
          {"power_limit_watts", or_null(environment.power_limit_watts)}}},
        {"driver", {{"version", environment.driver_version}, {"cuda", environment.cuda_version}}},
        {"nvrtc", {{"version", environment.nvrtc_version}}},
        {"backlight",
         {{"version", environment.version}, {"git_revision", environment.git_revision}}},
        {"date", environment.date}};
}

}  // namespace backlight::tool
