#pragma once

#include <cuda.h>

#include <memory>
#include <string>
#include <string_view>

// cudaProfiler.h declares these two; it comes in a package of its own, for no more than this.
extern "C" {
CUresult CUDAAPI cuProfilerStart(void);
CUresult CUDAAPI cuProfilerStop(void);
}

namespace backlight::device {

// Every driver function that Backlight calls: the name in cuda.h, and the symbol that the driver
// exports for it (cuda.h renames functions to their newest version; the oldest version whose
// signature we use keeps older drivers usable).
#define BACKLIGHT_DRIVER_FUNCTIONS(X)                             \
    X(cuInit, "cuInit")                                           \
    X(cuDriverGetVersion, "cuDriverGetVersion")                   \
    X(cuGetErrorName, "cuGetErrorName")                           \
    X(cuGetErrorString, "cuGetErrorString")                       \
    X(cuDeviceGetCount, "cuDeviceGetCount")                       \
    X(cuDeviceGet, "cuDeviceGet")                                 \
    X(cuDeviceGetName, "cuDeviceGetName")                         \
    X(cuDeviceGetAttribute, "cuDeviceGetAttribute")               \
    X(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId")                 \
    X(cuDeviceTotalMem, "cuDeviceTotalMem_v2")                    \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain")       \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2")  \
    X(cuCtxGetCurrent, "cuCtxGetCurrent")                         \
    X(cuCtxSetCurrent, "cuCtxSetCurrent")                         \
    X(cuCtxSynchronize, "cuCtxSynchronize")                       \
    X(cuLibraryLoadData, "cuLibraryLoadData")                     \
    X(cuLibraryUnload, "cuLibraryUnload")                         \
    X(cuLibraryGetKernel, "cuLibraryGetKernel")                   \
    X(cuKernelGetFunction, "cuKernelGetFunction")                 \
    X(cuKernelSetAttribute, "cuKernelSetAttribute")               \
    X(cuFuncGetAttribute, "cuFuncGetAttribute")                   \
    X(cuLaunchKernelEx, "cuLaunchKernelEx")                       \
    X(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled")           \
    X(cuMemAlloc, "cuMemAlloc_v2")                                \
    X(cuMemFree, "cuMemFree_v2")                                  \
    X(cuMemcpyHtoD, "cuMemcpyHtoD_v2")                            \
    X(cuMemcpyDtoH, "cuMemcpyDtoH_v2")                            \
    X(cuMemsetD8Async, "cuMemsetD8Async")                         \
    X(cuMemsetD2D8Async, "cuMemsetD2D8Async")                     \
    X(cuStreamCreate, "cuStreamCreate")                           \
    X(cuStreamDestroy, "cuStreamDestroy_v2")                      \
    X(cuStreamSynchronize, "cuStreamSynchronize")                 \
    X(cuStreamIsCapturing, "cuStreamIsCapturing")                 \
    X(cuStreamBeginCapture, "cuStreamBeginCapture_v2")            \
    X(cuStreamEndCapture, "cuStreamEndCapture")                   \
    X(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags") \
    X(cuGraphLaunch, "cuGraphLaunch")                             \
    X(cuGraphExecDestroy, "cuGraphExecDestroy")                   \
    X(cuGraphDestroy, "cuGraphDestroy")                           \
    X(cuEventCreate, "cuEventCreate")                             \
    X(cuEventDestroy, "cuEventDestroy_v2")                        \
    X(cuEventRecord, "cuEventRecord")                             \
    X(cuEventSynchronize, "cuEventSynchronize")                   \
    X(cuEventElapsedTime, "cuEventElapsedTime")                   \
    X(cuProfilerStart, "cuProfilerStart")                         \
    X(cuProfilerStop, "cuProfilerStop")

/// The driver's functions, found in the library at run time: nothing of Backlight links against it.
struct DriverApi {
#define BACKLIGHT_DECLARE(function, symbol) decltype(&::function) function = nullptr;
    BACKLIGHT_DRIVER_FUNCTIONS(BACKLIGHT_DECLARE)
#undef BACKLIGHT_DECLARE

    /// The library's file.
    std::string path;

    /// Throws `driver_failed` with the driver's own name and text of the error, unless `result` is
    /// success. `call` says what was attempted.
    void check(CUresult result, std::string_view call) const;
    std::string describe(CUresult result) const;
};

/// Opens and initialises the driver: `path`, else libcuda.so.1. Throws `driver_not_found` with what
/// to do, or `driver_failed`. The same path gives the same table.
std::shared_ptr<const DriverApi> open_driver(const std::string& path);

}  // namespace backlight::device
