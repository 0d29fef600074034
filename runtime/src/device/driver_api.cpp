#include "device/driver_api.hpp"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <vector>

#include "backlight/error.hpp"
#include "device/shared_library.hpp"

namespace backlight::device {

std::string DriverApi::describe(CUresult result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    cuGetErrorName(result, &name);
    cuGetErrorString(result, &text);
    return fmt::format("{} ({})", name != nullptr ? name : "unknown error",
                       text != nullptr ? text : fmt::format("number {}", static_cast<int>(result)));
}

void DriverApi::check(CUresult result, std::string_view call) const {
    if (result != CUDA_SUCCESS) {
        throw Error(ErrorCode::driver_failed,
                    fmt::format("the CUDA driver failed to {}: {}", call, describe(result)));
    }
}

namespace {

std::shared_ptr<const DriverApi> load_driver(const std::string& path) {
    const std::vector<std::string> names = {path.empty() ? "libcuda.so.1" : path};
    const SharedLibrary library(names);
    if (!library.opened()) {
        throw Error(ErrorCode::driver_not_found,
                    fmt::format("the CUDA driver library could not be opened; on a machine with an "
                                "NVIDIA GPU install its driver, or set BACKLIGHT_DRIVER_PATH to "
                                "libcuda.so.1; `backlight doctor` tells what this machine has:{}",
                                library.failure()));
    }
    auto api = std::make_shared<DriverApi>();
    api->path = library.path();
#define BACKLIGHT_LOAD(function, symbol_name)                                                  \
    api->function = reinterpret_cast<decltype(api->function)>(library.symbol(symbol_name));    \
    if (api->function == nullptr) {                                                            \
        throw Error(ErrorCode::driver_not_found,                                               \
                    fmt::format("the library {} has no {}: it is not the CUDA driver, or one " \
                                "older than CUDA 12.0; install a newer driver",                \
                                api->path, symbol_name));                                      \
    }
    BACKLIGHT_DRIVER_FUNCTIONS(BACKLIGHT_LOAD)
#undef BACKLIGHT_LOAD
    const CUresult result = api->cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        throw Error(ErrorCode::device_not_found,
                    fmt::format("the CUDA driver {} finds no CUDA device", api->path));
    }
    api->check(result, "initialise (cuInit)");
    return api;
}

}  // namespace

std::shared_ptr<const DriverApi> open_driver(const std::string& path) {
    static std::mutex mutex;
    // Never destroyed: the destructor of a static object may make a Runtime.
    static auto& opened = *new std::map<std::string, std::shared_ptr<const DriverApi>>;
    const std::lock_guard lock(mutex);
    // A failure is not kept: a driver may be installed while the process runs.
    auto& api = opened[path];
    if (api == nullptr) {
        api = load_driver(path);
    }
    return api;
}

}  // namespace backlight::device
