#include "logging.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <string>

namespace backlight {

namespace {

/// A name that is none must not silence the warnings, which is what spdlog makes of it.
void set_level_by_name(spdlog::logger& logger, std::string name) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
    const spdlog::level::level_enum level = spdlog::level::from_str(name);
    if (level != spdlog::level::off || name == "off") {
        logger.set_level(level);
    } else if (!name.empty()) {
        logger.warn("BACKLIGHT_LOG_LEVEL is '{}': it must be trace, debug, info, warn, err or off",
                    name);
    }
}

}  // namespace

spdlog::logger& logger() {
    // Never destroyed: plans may outlive every static object of this library.
    static std::shared_ptr<spdlog::logger>& instance = *new std::shared_ptr<spdlog::logger>([] {
        if (auto registered = spdlog::get("backlight")) {
            return registered;
        }
        auto own = std::make_shared<spdlog::logger>(
            "backlight", std::make_shared<spdlog::sinks::stderr_sink_mt>());
        own->set_level(spdlog::level::warn);
        if (const char* level = std::getenv("BACKLIGHT_LOG_LEVEL"); level != nullptr) {
            set_level_by_name(*own, level);
        }
        return own;
    }());
    return *instance;
}

}  // namespace backlight
