#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/cuda_device.hpp"

namespace backlight::tool {

/// Clocks and power of one GPU through the driver's management library, libnvidia-ml.so.1, opened
/// at run time. Where the library or a figure is not there, the answer is empty: a measurement is
/// worth having without it.
class Nvml {
  public:
    explicit Nvml(const device::CudaDevice& device);

    bool available() const noexcept { return device_ != nullptr; }
    /// Why not, where it is not.
    const std::string& note() const noexcept { return note_; }

    /// The device's place on the PCI bus, by which nvidia-smi knows it; empty if unknown.
    const std::string& bus_id() const noexcept { return bus_id_; }
    /// For example "580.65.06".
    std::string driver_version() const;
    std::optional<double> sm_clock_mhz() const;
    std::optional<double> highest_sm_clock_mhz() const;
    std::optional<double> memory_clock_mhz() const;
    /// On recent data-centre cards the driver's mean over about the last second.
    std::optional<double> power_watts() const;
    std::optional<double> power_limit_watts() const;

  private:
    // nvml.h comes with the toolkit's development packages only; these few are all we call, and
    // their signatures have been the same since they were made.
    using Device = void*;
    using Init = int (*)();
    using Version = int (*)(char*, unsigned);
    using HandleByBusId = int (*)(const char*, Device*);
    using Clock = int (*)(Device, int, unsigned*);
    using Power = int (*)(Device, unsigned*);

    std::optional<double> clock(Clock function, int which) const;
    std::optional<double> power(Power function) const;

    Device device_ = nullptr;
    std::string note_;
    std::string bus_id_;
    Version driver_version_ = nullptr;
    Clock clock_ = nullptr;
    Clock highest_clock_ = nullptr;
    Power power_ = nullptr;
    Power power_limit_ = nullptr;
};

}  // namespace backlight::tool
