#include "backlight/error.hpp"

namespace backlight {

const char* to_string(ErrorCode code) noexcept {
    switch (code) {
        case ErrorCode::invalid_argument:
            return "invalid_argument";
        case ErrorCode::unsupported:
            return "unsupported";
        case ErrorCode::workspace_too_small:
            return "workspace_too_small";
        case ErrorCode::unknown_kernel:
            return "unknown_kernel";
        case ErrorCode::shared_memory_exceeded:
            return "shared_memory_exceeded";
        case ErrorCode::driver_not_found:
            return "driver_not_found";
        case ErrorCode::driver_failed:
            return "driver_failed";
        case ErrorCode::device_not_found:
            return "device_not_found";
        case ErrorCode::unsupported_device:
            return "unsupported_device";
        case ErrorCode::capture_active:
            return "capture_active";
        case ErrorCode::nvrtc_not_found:
            return "nvrtc_not_found";
        case ErrorCode::nvrtc_too_old:
            return "nvrtc_too_old";
        case ErrorCode::compile_failed:
            return "compile_failed";
        case ErrorCode::compile_forbidden:
            return "compile_forbidden";
        case ErrorCode::file_error:
            return "file_error";
        case ErrorCode::kernel_fault:
            return "kernel_fault";
        case ErrorCode::host_compiler_not_found:
            return "host_compiler_not_found";
    }
    return "unknown";
}

}  // namespace backlight
