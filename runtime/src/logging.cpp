#include "logging.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>

namespace backlight {

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
            own->set_level(spdlog::level::from_str(level));
        }
        return own;
    }());
    return *instance;
}

}  // namespace backlight
