#pragma once

#include <stdexcept>
#include <string>

#include "backlight/export.h"

namespace backlight {

/// Why a call was refused or failed. The values are fixed.
enum class ErrorCode : int {
    /// A field of a problem, configuration or tensor breaks a rule; the message names all three.
    invalid_argument = 1,
    /// The request is well formed, but no kernel of this build takes it.
    unsupported = 2,
    /// The workspace passed to `run` is smaller than `workspace_bytes()`.
    workspace_too_small = 3,
    /// No kernel preset has the given name.
    unknown_kernel = 4,
    /// A tile configuration needs more shared memory than a block of the target may have.
    shared_memory_exceeded = 5,
    /// The CUDA driver library (libcuda.so.1) could not be opened, or lacks a function we need.
    driver_not_found = 10,
    /// The driver is there and refused a call; the message carries the driver's own error name.
    driver_failed = 11,
    /// There is no CUDA device with the requested ordinal.
    device_not_found = 12,
    /// The device lacks what the kernels need (TMA: compute capability 9.0 or newer).
    unsupported_device = 13,
    /// Kernels would have to be compiled or loaded while a stream is being captured: `prepare` the
    /// problem before the capture begins.
    capture_active = 14,
    /// NVRTC could not be opened, or lacks a function we need.
    nvrtc_not_found = 20,
    /// NVRTC is older than the oldest supported version, or cannot compile for the target.
    nvrtc_too_old = 21,
    /// NVRTC refused the source; the message carries its path, version, options and whole log.
    compile_failed = 22,
    /// No layer of the cache has the kernel, and the policy forbids to compile it.
    compile_forbidden = 23,
    /// A file could not be read or written, or is not what it should be.
    file_error = 30,
    /// The emulated device caught a kernel at a fault, or all that the tuner checked are wrong.
    kernel_fault = 40,
    /// The emulated device found no C++ compiler, or the compiler failed to start.
    host_compiler_not_found = 41,
};

/// The stable name of a code, for example "invalid_argument".
BACKLIGHT_API const char* to_string(ErrorCode code) noexcept;

/// The one exception type that the library throws.
class BACKLIGHT_API Error : public std::runtime_error {
  public:
    Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

    ErrorCode code() const noexcept { return code_; }

  private:
    ErrorCode code_;
};

}  // namespace backlight
