#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "session/device_choice.hpp"

namespace backlight::tool {

/// The options of the emulated device, for subcommands that run kernels on it.
class EmulationArguments {
  public:
    void add_to(CLI::App& command);

    /// The chosen device with what they say. Throws `invalid_argument` with the option, also where
    /// one is given with a CUDA device.
    DeviceChoice applied_to(DeviceChoice device) const;

  private:
    std::optional<std::string> seed_;
    std::string grid_order_;
    bool debug_kernels_ = false;
    bool bank_conflicts_ = false;
};

}  // namespace backlight::tool
