#include "nvml.hpp"

#include <array>
#include <vector>

#include "device/shared_library.hpp"

namespace backlight::tool {

namespace {

constexpr int nvml_success = 0;
constexpr int nvml_clock_sm = 1;
constexpr int nvml_clock_memory = 2;

template <typename Function>
Function find(const device::SharedLibrary& library, const char* name) {
    return reinterpret_cast<Function>(library.symbol(name));
}

/// The two libraries number devices differently; the bus is what both know.
std::string bus_id_of(const device::CudaDevice& device) {
    const std::vector<std::string> names = {device.driver().path};
    const device::SharedLibrary driver(names);
    const auto get = find<CUresult (*)(char*, int, CUdevice)>(driver, "cuDeviceGetPCIBusId");
    std::array<char, 64> text{};
    if (get == nullptr ||
        get(text.data(), static_cast<int>(text.size()), device.handle()) != CUDA_SUCCESS) {
        return {};
    }
    return text.data();
}

}  // namespace

Nvml::Nvml(const device::CudaDevice& device) : bus_id_(bus_id_of(device)) {
    const std::vector<std::string> names = {"libnvidia-ml.so.1"};
    const device::SharedLibrary library(names);
    if (!library.opened()) {
        note_ = "libnvidia-ml.so.1 could not be opened:" + library.failure();
        return;
    }
    const auto init = find<Init>(library, "nvmlInit_v2");
    const auto handle = find<HandleByBusId>(library, "nvmlDeviceGetHandleByPciBusId_v2");
    if (init == nullptr || handle == nullptr || init() != nvml_success) {
        note_ = "libnvidia-ml.so.1 could not be initialised";
        return;
    }
    driver_version_ = find<Version>(library, "nvmlSystemGetDriverVersion");
    clock_ = find<Clock>(library, "nvmlDeviceGetClockInfo");
    highest_clock_ = find<Clock>(library, "nvmlDeviceGetMaxClockInfo");
    power_ = find<Power>(library, "nvmlDeviceGetPowerUsage");
    power_limit_ = find<Power>(library, "nvmlDeviceGetEnforcedPowerLimit");
    if (handle(bus_id_.c_str(), &device_) != nvml_success) {
        device_ = nullptr;
        note_ = "libnvidia-ml.so.1 does not know the device";
    }
}

std::string Nvml::driver_version() const {
    std::array<char, 96> text{};
    if (driver_version_ == nullptr ||
        driver_version_(text.data(), static_cast<unsigned>(text.size())) != nvml_success) {
        return {};
    }
    return text.data();
}

std::optional<double> Nvml::clock(Clock function, int which) const {
    unsigned megahertz = 0;
    if (device_ == nullptr || function == nullptr ||
        function(device_, which, &megahertz) != nvml_success) {
        return std::nullopt;
    }
    return megahertz;
}

std::optional<double> Nvml::power(Power function) const {
    unsigned milliwatts = 0;
    if (device_ == nullptr || function == nullptr ||
        function(device_, &milliwatts) != nvml_success) {
        return std::nullopt;
    }
    return milliwatts / 1000.0;
}

std::optional<double> Nvml::sm_clock_mhz() const {
    return clock(clock_, nvml_clock_sm);
}

std::optional<double> Nvml::highest_sm_clock_mhz() const {
    return clock(highest_clock_, nvml_clock_sm);
}

std::optional<double> Nvml::memory_clock_mhz() const {
    return clock(clock_, nvml_clock_memory);
}

std::optional<double> Nvml::power_watts() const {
    return power(power_);
}

std::optional<double> Nvml::power_limit_watts() const {
    return power(power_limit_);
}

}  // namespace backlight::tool
