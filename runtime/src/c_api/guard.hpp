#pragma once

#include <string_view>

#include "backlight/backlight.h"
#include "backlight/error.hpp"

namespace backlight::c_api {

/// Keeps the text of the exception at hand for `backlight_last_error_message` of this thread, and
/// gives its status.
backlight_status keep_current_exception() noexcept;

/// BACKLIGHT_SUCCESS, or the status of what `function` throws: no exception may cross into C.
template <typename Function>
backlight_status guarded(Function&& function) noexcept {
    try {
        function();
        return BACKLIGHT_SUCCESS;
    } catch (...) {
        return keep_current_exception();
    }
}

/// Throws `invalid_argument`.
[[noreturn]] void refuse(const std::string& message);

[[noreturn]] void refuse_null(std::string_view argument);

/// The object behind a pointer that must not be null.
template <typename Object>
Object& required(Object* object, std::string_view argument) {
    if (object == nullptr) {
        refuse_null(argument);
    }
    return *object;
}

}  // namespace backlight::c_api
