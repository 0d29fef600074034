#include "c_api/guard.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <string>

#include "version.hpp"

namespace backlight::c_api {

namespace {

thread_local std::string kept_message;
/// What counts in place of `kept_message`, where there is no memory to keep one.
thread_local const char* fixed_message = "";

void keep(const char* message) noexcept {
    try {
        kept_message = message;
        fixed_message = nullptr;
    } catch (const std::bad_alloc&) {
        fixed_message = "out of memory, also for the text of the error";
    }
}

}  // namespace

backlight_status keep_current_exception() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        keep(error.what());
        return static_cast<backlight_status>(error.code());
    } catch (const std::bad_alloc&) {
        fixed_message = "the host has no memory left";
        return BACKLIGHT_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
        keep(error.what());
    } catch (...) {
        fixed_message = "an exception of a type that is not known";
    }
    return BACKLIGHT_FAILED;
}

void refuse(const std::string& message) {
    throw Error(ErrorCode::invalid_argument, message);
}

void refuse_null(std::string_view argument) {
    refuse(fmt::format("{} is null: it must not be", argument));
}

}  // namespace backlight::c_api

// The values are the C++ ones; those of C++ are fixed.
#define BACKLIGHT_SAME(c_name, cpp_name) \
    static_assert((c_name) == static_cast<int>(backlight::ErrorCode::cpp_name))
BACKLIGHT_SAME(BACKLIGHT_INVALID_ARGUMENT, invalid_argument);
BACKLIGHT_SAME(BACKLIGHT_UNSUPPORTED, unsupported);
BACKLIGHT_SAME(BACKLIGHT_WORKSPACE_TOO_SMALL, workspace_too_small);
BACKLIGHT_SAME(BACKLIGHT_UNKNOWN_KERNEL, unknown_kernel);
BACKLIGHT_SAME(BACKLIGHT_SHARED_MEMORY_EXCEEDED, shared_memory_exceeded);
BACKLIGHT_SAME(BACKLIGHT_DRIVER_NOT_FOUND, driver_not_found);
BACKLIGHT_SAME(BACKLIGHT_DRIVER_FAILED, driver_failed);
BACKLIGHT_SAME(BACKLIGHT_DEVICE_NOT_FOUND, device_not_found);
BACKLIGHT_SAME(BACKLIGHT_UNSUPPORTED_DEVICE, unsupported_device);
BACKLIGHT_SAME(BACKLIGHT_CAPTURE_ACTIVE, capture_active);
BACKLIGHT_SAME(BACKLIGHT_NVRTC_NOT_FOUND, nvrtc_not_found);
BACKLIGHT_SAME(BACKLIGHT_NVRTC_TOO_OLD, nvrtc_too_old);
BACKLIGHT_SAME(BACKLIGHT_COMPILE_FAILED, compile_failed);
BACKLIGHT_SAME(BACKLIGHT_COMPILE_FORBIDDEN, compile_forbidden);
BACKLIGHT_SAME(BACKLIGHT_FILE_ERROR, file_error);
BACKLIGHT_SAME(BACKLIGHT_KERNEL_FAULT, kernel_fault);
BACKLIGHT_SAME(BACKLIGHT_HOST_COMPILER_NOT_FOUND, host_compiler_not_found);
#undef BACKLIGHT_SAME

extern "C" {

const char* backlight_version() {
    return backlight::version().data();
}

int32_t backlight_version_number() {
    return BACKLIGHT_VERSION;
}

const char* backlight_status_name(backlight_status status) {
    switch (status) {
        case BACKLIGHT_SUCCESS:
            return "success";
        case BACKLIGHT_OUT_OF_MEMORY:
            return "out_of_memory";
        case BACKLIGHT_FAILED:
            return "failed";
        default:
            return to_string(static_cast<backlight::ErrorCode>(status));
    }
}

const char* backlight_last_error_message() {
    using namespace backlight::c_api;
    return fixed_message != nullptr ? fixed_message : kept_message.c_str();
}

}  // extern "C"
