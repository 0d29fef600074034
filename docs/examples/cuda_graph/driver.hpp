#pragma once

// The CUDA driver, as this example calls it. Your program links the CUDA runtime or the driver as
// it always has; this one opens the driver when it runs, so that it builds where there is none.

#include <cuda.h>
#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

/// There is no driver, or it has no GPU.
struct NoGpu : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void* driver_function(const char* name) {
    static void* const library = [] {
        const char* path = std::getenv("BACKLIGHT_DRIVER_PATH");
        return dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW);
    }();
    void* function = library != nullptr ? dlsym(library, name) : nullptr;
    if (function == nullptr) {
        throw NoGpu(dlerror());
    }
    return function;
}

inline void check(const char* call, CUresult result) {
    if (result == CUDA_ERROR_NO_DEVICE || result == CUDA_ERROR_STUB_LIBRARY) {
        throw NoGpu(std::string(call) + " found no device");
    }
    if (result != CUDA_SUCCESS) {
        throw std::runtime_error(std::string(call) + " gave CUresult " + std::to_string(result));
    }
}

// cuda.h gives some functions a newer name (cuMemAlloc is cuMemAlloc_v2), which is the one to look
// for: the inner macro is handed the name after that.
#define FUNCTION_NAME(function) #function
/// CUDA(cuMemAlloc, &pointer, bytes): the call, with its result checked.
#define CUDA(function, ...)                                 \
    check(#function, reinterpret_cast<decltype(&function)>( \
                         driver_function(FUNCTION_NAME(function)))(__VA_ARGS__))
