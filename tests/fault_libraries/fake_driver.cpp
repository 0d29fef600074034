// A CUDA driver for tests of host code: fault injection and recording. It runs no kernel and has no
// device; it answers the calls that Backlight makes, keeps a record of them, and fails where a test
// tells it to. So errors are tested that no machine with a working GPU can show (a card without
// TMA, a driver that refuses a launch, a driver too old), and host code on machines without any
// GPU. What kernels compute is tested elsewhere, on real devices.
//
// With BACKLIGHT_FAKE_DRIVER_TOO_OLD it lacks cuLaunchKernelEx, as drivers before CUDA 11.8 do.

#include "fake_driver.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "arguments/attention_backward.h"
#include "arguments/attention_backward_mma_resident.h"
#include "device/driver_api.hpp"

// cuda.h renames functions to their newest versions; here every function is defined under the very
// name that is looked up in the library.
#undef cuDeviceTotalMem
#undef cuDevicePrimaryCtxRelease
#undef cuMemAlloc
#undef cuMemFree
#undef cuMemcpyHtoD
#undef cuMemcpyDtoH
#undef cuStreamDestroy
#undef cuStreamBeginCapture
#undef cuEventDestroy
#undef cuEventElapsedTime

#define BACKLIGHT_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using backlight::fault::AttributeSetting;
using backlight::fault::EncodedMap;
using backlight::fault::Launch;
using backlight::fault::name_bytes;

constexpr int most_devices = 16;

struct FakeKernel {
    std::array<char, name_bytes> name{};
};

struct FakeLibrary {
    std::vector<std::unique_ptr<FakeKernel>> kernels;
};

struct Failure {
    std::string symbol;
    int calls_before = 0;
    CUresult result = CUDA_SUCCESS;
};

struct ComputeCapability {
    int major = 9;
    int minor = 0;
};

struct State {
    std::mutex mutex;
    int devices = 1;
    std::array<ComputeCapability, most_devices> capabilities{};
    bool capturing = false;
    bool recording = true;
    std::vector<Failure> failures;
    std::vector<Launch> launches;
    std::vector<EncodedMap> encodes;
    std::vector<AttributeSetting> attributes;
    std::size_t launch_count = 0;
    std::size_t encode_count = 0;
    std::size_t library_loads = 0;
    std::set<FakeLibrary*> libraries;
    std::set<const FakeKernel*> kernels;
};

/// As the driver has it, a thread's own.
thread_local bool has_context = false;

/// Set by this library's own destructors, as the driver's end at the exit of a process: every call
/// fails from then on.
std::atomic<bool> has_ended = false;
const struct AtExit {
    ~AtExit() { has_ended = true; }
} at_exit;

State& state() {
    // Never destroyed: plans in static objects may unload after this library's own destructors.
    static State& instance = *new State;
    return instance;
}

using Lock = std::lock_guard<std::mutex>;

/// The failure that a test has ordered for this call, or success. The state is locked.
CUresult outcome_locked(const char* symbol) {
    if (has_ended) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    std::vector<Failure>& failures = state().failures;
    for (auto failure = failures.begin(); failure != failures.end(); ++failure) {
        if (failure->symbol == symbol) {
            if (failure->calls_before-- > 0) {
                return CUDA_SUCCESS;
            }
            const CUresult result = failure->result;
            failures.erase(failure);
            return result;
        }
    }
    return CUDA_SUCCESS;
}

CUresult outcome(const char* symbol) {
    const Lock lock(state().mutex);
    return outcome_locked(symbol);
}

/// A handle that is not null; nothing is behind it.
template <typename Handle>
Handle some_handle() {
    static std::atomic<std::uintptr_t> last = 0x1000;
    return reinterpret_cast<Handle>(last.fetch_add(0x10));
}

void copy_name(char (&destination)[name_bytes], const FakeKernel& kernel) {
    std::memcpy(destination, kernel.name.data(), name_bytes);
}

[[maybe_unused]] std::size_t argument_bytes(std::string_view kernel) {
    using namespace backlight::kernel;
    if (kernel == "attention_backward_delta") {
        return sizeof(DeltaArguments);
    }
    if (kernel == "attention_backward_mma") {
        return sizeof(MmaArguments);
    }
    if (kernel == "attention_backward_wgmma") {
        return sizeof(WgmmaArguments);
    }
    if (kernel == "attention_backward_mma_resident" ||
        kernel == "attention_backward_mma_resident_wide") {
        return sizeof(MmaResidentArguments);
    }
    if (kernel == "attention_backward_convert") {
        return sizeof(ConvertArguments);
    }
    return 0;
}

struct ErrorText {
    CUresult result;
    const char* name;
    const char* text;
};

constexpr std::array error_texts = {
    ErrorText{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ErrorText{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    ErrorText{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    ErrorText{CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    ErrorText{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    ErrorText{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    ErrorText{CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    ErrorText{CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU",
              "no kernel image is available for execution on the device"},
    ErrorText{CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE",
              "device kernel image is invalid"},
    ErrorText{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
              "operation not permitted when stream is capturing"},
    ErrorText{CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
              "system has unsupported display driver / cuda driver combination"},
};

const ErrorText* error_text(CUresult result) {
    for (const ErrorText& known : error_texts) {
        if (known.result == result) {
            return &known;
        }
    }
    return nullptr;
}

}  // namespace

// --- Control ------------------------------------------------------------------------------------

BACKLIGHT_EXPORT void fake_reset() {
    State& s = state();
    const Lock lock(s.mutex);
    s.devices = 1;
    s.capabilities.fill({});
    has_context = false;
    s.capturing = false;
    s.recording = true;
    s.failures.clear();
    s.launches.clear();
    s.encodes.clear();
    s.attributes.clear();
    s.launch_count = 0;
    s.encode_count = 0;
    s.library_loads = 0;
}

BACKLIGHT_EXPORT void fake_set_device_count(int count) {
    const Lock lock(state().mutex);
    state().devices = count;
}

BACKLIGHT_EXPORT void fake_set_compute_capability(int major, int minor) {
    const Lock lock(state().mutex);
    state().capabilities.fill({major, minor});
}

BACKLIGHT_EXPORT void fake_set_compute_capability_of(int device, int major, int minor) {
    const Lock lock(state().mutex);
    state().capabilities.at(static_cast<std::size_t>(device)) = {major, minor};
}

BACKLIGHT_EXPORT void fake_set_current_context(bool present) {
    has_context = present;
}

BACKLIGHT_EXPORT void fake_set_capturing(bool on) {
    const Lock lock(state().mutex);
    state().capturing = on;
}

BACKLIGHT_EXPORT void fake_fail_after(const char* symbol, int calls, CUresult result) {
    const Lock lock(state().mutex);
    state().failures.push_back({symbol, calls, result});
}

BACKLIGHT_EXPORT void fake_fail_next(const char* symbol, CUresult result) {
    fake_fail_after(symbol, 0, result);
}

BACKLIGHT_EXPORT void fake_set_recording(bool on) {
    const Lock lock(state().mutex);
    state().recording = on;
}

BACKLIGHT_EXPORT std::size_t fake_launch_count() {
    const Lock lock(state().mutex);
    return state().launch_count;
}

BACKLIGHT_EXPORT void fake_launch(std::size_t index, Launch* launch) {
    const Lock lock(state().mutex);
    *launch = state().launches.at(index);
}

BACKLIGHT_EXPORT std::size_t fake_encode_count() {
    const Lock lock(state().mutex);
    return state().encode_count;
}

BACKLIGHT_EXPORT void fake_encode(std::size_t index, EncodedMap* map) {
    const Lock lock(state().mutex);
    *map = state().encodes.at(index);
}

BACKLIGHT_EXPORT std::size_t fake_attribute_count() {
    const Lock lock(state().mutex);
    return state().attributes.size();
}

BACKLIGHT_EXPORT void fake_attribute(std::size_t index, AttributeSetting* setting) {
    const Lock lock(state().mutex);
    *setting = state().attributes.at(index);
}

BACKLIGHT_EXPORT std::size_t fake_library_load_count() {
    const Lock lock(state().mutex);
    return state().library_loads;
}

BACKLIGHT_EXPORT std::size_t fake_loaded_library_count() {
    const Lock lock(state().mutex);
    return state().libraries.size();
}

// --- Start, errors, devices ---------------------------------------------------------------------

BACKLIGHT_EXPORT CUresult cuInit(unsigned) {
    return outcome("cuInit");
}

BACKLIGHT_EXPORT CUresult cuDriverGetVersion(int* version) {
    *version = 13000;
    return outcome("cuDriverGetVersion");
}

BACKLIGHT_EXPORT CUresult cuGetErrorName(CUresult error, const char** name) {
    const ErrorText* known = error_text(error);
    *name = known != nullptr ? known->name : nullptr;
    return known != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

BACKLIGHT_EXPORT CUresult cuGetErrorString(CUresult error, const char** text) {
    const ErrorText* known = error_text(error);
    *text = known != nullptr ? known->text : nullptr;
    return known != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

BACKLIGHT_EXPORT CUresult cuDeviceGetCount(int* count) {
    const Lock lock(state().mutex);
    *count = state().devices;
    return outcome_locked("cuDeviceGetCount");
}

BACKLIGHT_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
    const Lock lock(state().mutex);
    if (ordinal < 0 || ordinal >= state().devices) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    *device = ordinal;
    return outcome_locked("cuDeviceGet");
}

BACKLIGHT_EXPORT CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
    const std::string text = "Fake device " + std::to_string(device);
    std::strncpy(name, text.c_str(), static_cast<std::size_t>(bytes));
    return outcome("cuDeviceGetName");
}

BACKLIGHT_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute,
                                               CUdevice device) {
    const Lock lock(state().mutex);
    const ComputeCapability capability = state().capabilities.at(static_cast<std::size_t>(device));
    switch (attribute) {
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
            *value = capability.major;
            break;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
            *value = capability.minor;
            break;
        case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: {
            const bool data_center = capability.major == 9 || capability.major == 10;
            *value = (data_center ? 227 : 99) * 1024;
            break;
        }
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
            *value = 132;
            break;
        default:
            *value = 0;
    }
    return outcome_locked("cuDeviceGetAttribute");
}

BACKLIGHT_EXPORT CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
    std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device + 1);
    return outcome("cuDeviceGetPCIBusId");
}

BACKLIGHT_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = std::size_t{1} << 36;
    return outcome("cuDeviceTotalMem_v2");
}

BACKLIGHT_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
    *context = some_handle<CUcontext>();
    return outcome("cuDevicePrimaryCtxRetain");
}

BACKLIGHT_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) {
    return outcome("cuDevicePrimaryCtxRelease_v2");
}

BACKLIGHT_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
    const Lock lock(state().mutex);
    *context = has_context ? some_handle<CUcontext>() : nullptr;
    return outcome_locked("cuCtxGetCurrent");
}

BACKLIGHT_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
    const Lock lock(state().mutex);
    has_context = context != nullptr;
    return outcome_locked("cuCtxSetCurrent");
}

BACKLIGHT_EXPORT CUresult cuCtxSynchronize() {
    return outcome("cuCtxSynchronize");
}

// --- Kernels ------------------------------------------------------------------------------------

BACKLIGHT_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**,
                                            unsigned, CUlibraryOption*, void**, unsigned) {
    State& s = state();
    const Lock lock(s.mutex);
    if (const CUresult result = outcome_locked("cuLibraryLoadData"); result != CUDA_SUCCESS) {
        return result;
    }
    auto* loaded = new FakeLibrary;
    s.libraries.insert(loaded);
    ++s.library_loads;
    *library = reinterpret_cast<CUlibrary>(loaded);
    return CUDA_SUCCESS;
}

BACKLIGHT_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
    State& s = state();
    const Lock lock(s.mutex);
    auto* loaded = reinterpret_cast<FakeLibrary*>(library);
    if (s.libraries.erase(loaded) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    for (const auto& kernel : loaded->kernels) {
        s.kernels.erase(kernel.get());
    }
    delete loaded;
    return outcome_locked("cuLibraryUnload");
}

BACKLIGHT_EXPORT CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary library,
                                             const char* name) {
    State& s = state();
    const Lock lock(s.mutex);
    auto* loaded = reinterpret_cast<FakeLibrary*>(library);
    if (s.libraries.count(loaded) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const CUresult result = outcome_locked("cuLibraryGetKernel"); result != CUDA_SUCCESS) {
        return result;
    }
    auto made = std::make_unique<FakeKernel>();
    std::strncpy(made->name.data(), name, name_bytes - 1);
    s.kernels.insert(made.get());
    *kernel = reinterpret_cast<CUkernel>(made.get());
    loaded->kernels.push_back(std::move(made));
    return CUDA_SUCCESS;
}

BACKLIGHT_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
    *function = reinterpret_cast<CUfunction>(kernel);
    return outcome("cuKernelGetFunction");
}

BACKLIGHT_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value,
                                               CUkernel kernel, CUdevice device) {
    State& s = state();
    const Lock lock(s.mutex);
    const auto* known = reinterpret_cast<const FakeKernel*>(kernel);
    if (s.kernels.count(known) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const CUresult result = outcome_locked("cuKernelSetAttribute"); result != CUDA_SUCCESS) {
        return result;
    }
    AttributeSetting setting{};
    copy_name(setting.kernel, *known);
    setting.attribute = attribute;
    setting.value = value;
    setting.device = device;
    s.attributes.push_back(setting);
    return CUDA_SUCCESS;
}

BACKLIGHT_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return outcome("cuFuncGetAttribute");
}

#ifndef BACKLIGHT_FAKE_DRIVER_TOO_OLD
BACKLIGHT_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function,
                                           void** parameters, void**) {
    State& s = state();
    const Lock lock(s.mutex);
    // An unloaded kernel is refused, so that a plan that outlives its kernels is found out.
    const auto* kernel = reinterpret_cast<const FakeKernel*>(function);
    if (s.kernels.count(kernel) == 0) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (const CUresult result = outcome_locked("cuLaunchKernelEx"); result != CUDA_SUCCESS) {
        return result;
    }
    ++s.launch_count;
    if (!s.recording) {
        return CUDA_SUCCESS;
    }
    Launch launch{};
    copy_name(launch.kernel, *kernel);
    launch.grid[0] = config->gridDimX;
    launch.grid[1] = config->gridDimY;
    launch.grid[2] = config->gridDimZ;
    launch.block[0] = config->blockDimX;
    launch.block[1] = config->blockDimY;
    launch.block[2] = config->blockDimZ;
    launch.shared_bytes = config->sharedMemBytes;
    launch.stream = config->hStream;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        const CUlaunchAttribute& attribute = config->attrs[i];
        if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
            launch.programmatic_dependent_launch =
                attribute.value.programmaticStreamSerializationAllowed != 0;
        }
    }
    static_assert(sizeof(backlight::kernel::MmaArguments) <= sizeof(launch.arguments));
    static_assert(sizeof(backlight::kernel::WgmmaArguments) <= sizeof(launch.arguments));
    std::memcpy(launch.arguments, parameters[0], argument_bytes(launch.kernel));
    s.launches.push_back(launch);
    return CUDA_SUCCESS;
}
#endif

BACKLIGHT_EXPORT CUresult cuTensorMapEncodeTiled(
    CUtensorMap* map, CUtensorMapDataType data_type, cuuint32_t rank, void* address,
    const cuuint64_t* extents, const cuuint64_t* strides, const cuuint32_t* box,
    const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill fill) {
    State& s = state();
    const Lock lock(s.mutex);
    if (const CUresult result = outcome_locked("cuTensorMapEncodeTiled"); result != CUDA_SUCCESS) {
        return result;
    }
    if (rank != 4) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    EncodedMap encoded{};
    encoded.address = reinterpret_cast<std::uintptr_t>(address);
    for (std::size_t i = 0; i < 4; ++i) {
        encoded.extents[i] = extents[i];
        encoded.box[i] = box[i];
        encoded.element_strides[i] = static_cast<std::uint8_t>(element_strides[i]);
    }
    for (std::size_t i = 0; i < 3; ++i) {
        encoded.stride_bytes[i] = strides[i];
    }
    encoded.rank = static_cast<std::uint8_t>(rank);
    encoded.data_type = static_cast<std::uint8_t>(data_type);
    encoded.interleave = static_cast<std::uint8_t>(interleave);
    encoded.swizzle = static_cast<std::uint8_t>(swizzle);
    encoded.l2_promotion = static_cast<std::uint8_t>(l2_promotion);
    encoded.out_of_bounds_fill = static_cast<std::uint8_t>(fill);
    encoded.encoded = 1;
    std::memset(map, 0, sizeof(*map));
    std::memcpy(map, &encoded, sizeof(encoded));
    ++s.encode_count;
    if (s.recording) {
        s.encodes.push_back(encoded);
    }
    return CUDA_SUCCESS;
}

// --- Memory: the host's -------------------------------------------------------------------------

BACKLIGHT_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr* pointer, std::size_t bytes) {
    if (const CUresult result = outcome("cuMemAlloc_v2"); result != CUDA_SUCCESS) {
        return result;
    }
    void* memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    *pointer = reinterpret_cast<CUdeviceptr>(memory);
    return memory != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

BACKLIGHT_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer) {
    std::free(reinterpret_cast<void*>(pointer));
    return outcome("cuMemFree_v2");
}

BACKLIGHT_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr destination, const void* source,
                                          std::size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(destination), source, bytes);
    return outcome("cuMemcpyHtoD_v2");
}

BACKLIGHT_EXPORT CUresult cuMemcpyDtoH_v2(void* destination, CUdeviceptr source,
                                          std::size_t bytes) {
    std::memcpy(destination, reinterpret_cast<const void*>(source), bytes);
    return outcome("cuMemcpyDtoH_v2");
}

BACKLIGHT_EXPORT CUresult cuMemsetD8Async(CUdeviceptr destination, unsigned char value,
                                          std::size_t bytes, CUstream) {
    std::memset(reinterpret_cast<void*>(destination), value, bytes);
    return outcome("cuMemsetD8Async");
}

BACKLIGHT_EXPORT CUresult cuMemsetD2D8Async(CUdeviceptr destination, std::size_t pitch,
                                            unsigned char value, std::size_t width,
                                            std::size_t height, CUstream) {
    for (std::size_t row = 0; row < height; ++row) {
        std::memset(reinterpret_cast<void*>(destination + row * pitch), value, width);
    }
    return outcome("cuMemsetD2D8Async");
}

// --- Streams, graphs, events: handles with nothing behind them ----------------------------------

BACKLIGHT_EXPORT CUresult cuStreamCreate(CUstream* stream, unsigned) {
    *stream = some_handle<CUstream>();
    return outcome("cuStreamCreate");
}
BACKLIGHT_EXPORT CUresult cuStreamDestroy_v2(CUstream) {
    return outcome("cuStreamDestroy_v2");
}
BACKLIGHT_EXPORT CUresult cuStreamSynchronize(CUstream) {
    return outcome("cuStreamSynchronize");
}
BACKLIGHT_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
    const Lock lock(state().mutex);
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!has_context) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    return state().capturing && stream == CU_STREAM_LEGACY ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                                                           : outcome_locked("cuStreamIsCapturing");
}
BACKLIGHT_EXPORT CUresult cuStreamBeginCapture_v2(CUstream, CUstreamCaptureMode) {
    return outcome("cuStreamBeginCapture_v2");
}
BACKLIGHT_EXPORT CUresult cuStreamEndCapture(CUstream, CUgraph* graph) {
    *graph = some_handle<CUgraph>();
    return outcome("cuStreamEndCapture");
}
BACKLIGHT_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph,
                                                      unsigned long long) {
    *executable = some_handle<CUgraphExec>();
    return outcome("cuGraphInstantiateWithFlags");
}
BACKLIGHT_EXPORT CUresult cuGraphLaunch(CUgraphExec, CUstream) {
    return outcome("cuGraphLaunch");
}
BACKLIGHT_EXPORT CUresult cuGraphExecDestroy(CUgraphExec) {
    return outcome("cuGraphExecDestroy");
}
BACKLIGHT_EXPORT CUresult cuGraphDestroy(CUgraph) {
    return outcome("cuGraphDestroy");
}
BACKLIGHT_EXPORT CUresult cuEventCreate(CUevent* event, unsigned) {
    *event = some_handle<CUevent>();
    return outcome("cuEventCreate");
}
BACKLIGHT_EXPORT CUresult cuEventDestroy_v2(CUevent) {
    return outcome("cuEventDestroy_v2");
}
BACKLIGHT_EXPORT CUresult cuEventRecord(CUevent, CUstream) {
    return outcome("cuEventRecord");
}
BACKLIGHT_EXPORT CUresult cuEventSynchronize(CUevent) {
    return outcome("cuEventSynchronize");
}
BACKLIGHT_EXPORT CUresult cuEventElapsedTime(float* milliseconds, CUevent, CUevent) {
    *milliseconds = 1.0F;
    return outcome("cuEventElapsedTime");
}
BACKLIGHT_EXPORT CUresult cuProfilerStart() {
    return outcome("cuProfilerStart");
}
BACKLIGHT_EXPORT CUresult cuProfilerStop() {
    return outcome("cuProfilerStop");
}
