#include "warnings.hpp"

namespace backlight::cache {

void Warnings::tell_once(std::initializer_list<std::string_view> parts) noexcept {
    try {
        std::string text;
        for (const std::string_view part : parts) {
            text += part;
        }
        {
            const std::lock_guard lock(mutex_);
            if (!told_.insert(text).second) {
                return;
            }
        }
        if (sink_) {
            sink_(text);
        }
    } catch (...) {
        // A warning that cannot be given must not turn a miss into a failure.
        return;
    }
}

}  // namespace backlight::cache
