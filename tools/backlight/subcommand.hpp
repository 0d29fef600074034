#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <ostream>
#include <string>

#include "backlight/error.hpp"
#include "session/device_choice.hpp"

namespace backlight::tool {

/// What a subcommand does once the whole command line has been read; returns the exit code.
using Action = std::function<int()>;

/// What a subcommand needs to be set up: it adds itself to `app`, and its callback sets `action`.
struct Setup {
    CLI::App& app;
    const DeviceChoice& device;
    std::ostream& out;
    std::ostream& errors;
    Action& action;
};

/// Of an option whose value cannot be used; `rule` follows "it must be".
Error refused(const char* option, const std::string& value, const char* rule);

}  // namespace backlight::tool
