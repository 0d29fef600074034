#include "device/cuda_device.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "backlight/error.hpp"
#include "logging.hpp"

namespace backlight::device {

namespace {

int attribute(const DriverApi& driver, CUdevice device, CUdevice_attribute which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, device), "read a device attribute");
    return value;
}

/// Ordinals of the devices that run the same cubins as `target`.
std::vector<CUdevice> devices_of_target(const DriverApi& driver, const Target& target) {
    int count = 0;
    driver.check(driver.cuDeviceGetCount(&count), "count the devices");
    std::vector<CUdevice> devices;
    for (int ordinal = 0; ordinal < count; ++ordinal) {
        CUdevice device = 0;
        driver.check(driver.cuDeviceGet(&device, ordinal), "get a device");
        if (attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) ==
                target.compute_major &&
            attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) ==
                target.compute_minor) {
            devices.push_back(device);
        }
    }
    return devices;
}

/// Throws what a failure to load or to make ready tells of its cause.
void check_loading(const DriverApi& driver, CUresult result, std::string_view call) {
    switch (result) {
        case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
        case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
        case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
        case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
            throw Error(ErrorCode::capture_active,
                        fmt::format("{}: {}. A stream is being captured, and nothing can be loaded "
                                    "then: prepare the problem before the capture begins",
                                    call, driver.describe(result)));
        // An empty or damaged file, one for another card, one that lacks the kernel.
        case CUDA_ERROR_INVALID_VALUE:
        case CUDA_ERROR_INVALID_IMAGE:
        case CUDA_ERROR_NO_BINARY_FOR_GPU:
        case CUDA_ERROR_INVALID_PTX:
        case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
        case CUDA_ERROR_INVALID_SOURCE:
        case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
        case CUDA_ERROR_NOT_FOUND:
            throw CubinRefused(ErrorCode::driver_failed,
                               fmt::format("{}: {}", call, driver.describe(result)));
        default:
            driver.check(result, call);
    }
}

/// Owns a CUlibrary. Unloading tolerates a driver that has already shut down at process exit.
class Library {
  public:
    Library(std::shared_ptr<const DriverApi> driver, std::span<const std::byte> cubin)
        : driver_(std::move(driver)) {
        check_loading(*driver_,
                      driver_->cuLibraryLoadData(&handle_, cubin.data(), nullptr, nullptr, 0,
                                                 nullptr, nullptr, 0),
                      "load a cubin (cuLibraryLoadData)");
    }
    ~Library() {
        // Logging here could come after the logger's own end; a failure loses nothing but memory.
        driver_->cuLibraryUnload(handle_);
    }
    Library(const Library&) = delete;
    Library& operator=(const Library&) = delete;

    CUlibrary handle() const noexcept { return handle_; }
    const DriverApi& driver() const noexcept { return *driver_; }

  private:
    std::shared_ptr<const DriverApi> driver_;
    CUlibrary handle_ = nullptr;
};

// A CUdeviceptr is an integer by the driver's definition.
CUdeviceptr device_pointer(const void* memory) {
    return reinterpret_cast<CUdeviceptr>(memory);
}

class CudaKernel final : public Kernel {
  public:
    CudaKernel(std::shared_ptr<const DriverApi> driver, std::span<const std::byte> cubin,
               const char* entry)
        : library_(std::move(driver), cubin), entry_(entry) {
        check_loading(library_.driver(),
                      library_.driver().cuLibraryGetKernel(&kernel_, library_.handle(), entry),
                      fmt::format("find the kernel {} in its cubin", entry));
    }

    CUkernel handle() const noexcept { return kernel_; }

    void prepare() const override {
        const DriverApi& driver = library_.driver();
        CUcontext context = nullptr;
        driver.check(driver.cuCtxGetCurrent(&context), "get the current context");
        if (context == nullptr) {
            return;
        }
        CUfunction function = nullptr;
        check_loading(driver, driver.cuKernelGetFunction(&function, kernel_),
                      fmt::format("load {} into the current context", entry_));
        // Reading an attribute makes the driver load the code that it would else load at launch.
        int registers = 0;
        check_loading(driver,
                      driver.cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function),
                      fmt::format("read the registers of {}", entry_));
        logger().debug("{} is ready in the current context, {} registers", entry_, registers);
    }

    void launch(const LaunchShape& shape, const void* arguments, Stream stream) const override {
        CUlaunchAttribute early{};
        early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        early.value.programmaticStreamSerializationAllowed = 1;

        CUlaunchConfig config{};
        config.gridDimX = shape.blocks;
        config.gridDimY = 1;
        config.gridDimZ = 1;
        config.blockDimX = shape.threads;
        config.blockDimY = 1;
        config.blockDimZ = 1;
        config.sharedMemBytes = shape.dynamic_shared_bytes;
        config.hStream = stream;
        config.attrs = &early;
        config.numAttrs = shape.may_start_early ? 1 : 0;

        // The driver takes arguments by non-const pointer and only reads them.
        std::array<void*, 1> parameters = {const_cast<void*>(arguments)};
        const DriverApi& driver = library_.driver();
        // A CUkernel is launched through a CUfunction parameter, as the driver's documentation
        // says.
        const CUresult result = driver.cuLaunchKernelEx(
            &config, reinterpret_cast<CUfunction>(kernel_), parameters.data(), nullptr);
        if (result != CUDA_SUCCESS) {
            driver.check(
                result,
                fmt::format("launch {} ({} blocks of {} threads, {} bytes of shared "
                            "memory)",
                            entry_, shape.blocks, shape.threads, shape.dynamic_shared_bytes));
        }
    }

  private:
    Library library_;
    std::string entry_;
    CUkernel kernel_ = nullptr;
};

/// A CUevent with timing, in the calling thread's current context.
class Event {
  public:
    explicit Event(const DriverApi& driver) : driver_(driver) {
        driver_.check(driver_.cuEventCreate(&handle_, CU_EVENT_DEFAULT), "create an event");
    }
    ~Event() { driver_.cuEventDestroy(handle_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(Stream stream) const {
        driver_.check(driver_.cuEventRecord(handle_, stream), "record an event");
    }
    CUevent handle() const noexcept { return handle_; }

  private:
    const DriverApi& driver_;
    CUevent handle_ = nullptr;
};

}  // namespace

CudaDevice::CudaDevice(std::shared_ptr<const DriverApi> driver, int ordinal)
    : driver_(std::move(driver)) {
    int count = 0;
    driver_->check(driver_->cuDeviceGetCount(&count), "count the devices");
    if (ordinal < 0 || ordinal >= count) {
        throw Error(ErrorCode::device_not_found,
                    fmt::format("device is {}: this machine has {} CUDA device(s), numbered from 0",
                                ordinal, count));
    }
    driver_->check(driver_->cuDeviceGet(&handle_, ordinal), "get a device");
    std::array<char, 256> name{};
    driver_->check(driver_->cuDeviceGetName(name.data(), static_cast<int>(name.size()), handle_),
                   "read a device's name");
    properties_.name = name.data();
    const auto read = [&](CUdevice_attribute which) { return attribute(*driver_, handle_, which); };
    properties_.target = target_by_compute_capability(
        read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
        read(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), properties_.name);
    // What the device itself says counts for more than what is known of its kind.
    properties_.target.shared_bytes_per_block =
        static_cast<std::size_t>(read(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
    properties_.multiprocessors = read(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    properties_.l2_bytes = static_cast<std::size_t>(read(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE));
    properties_.clock_khz = read(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
    properties_.memory_clock_khz = read(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
    properties_.memory_bus_bits = read(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    driver_->check(driver_->cuDeviceTotalMem(&properties_.memory_bytes, handle_),
                   "read a device's memory size");
}

std::shared_ptr<const Kernel> CudaDevice::load(std::span<const std::byte> cubin, const char* entry,
                                               std::size_t dynamic_shared_bytes) {
    auto kernel = std::make_shared<CudaKernel>(driver_, cubin, entry);
    // Attributes of a CUkernel are kept per device: set them wherever a stream may lead.
    for (const CUdevice device : devices_of_target(*driver_, properties_.target)) {
        check_loading(
            *driver_,
            driver_->cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                          static_cast<int>(dynamic_shared_bytes), kernel->handle(),
                                          device),
            fmt::format("reserve {} bytes of shared memory for {}", dynamic_shared_bytes, entry));
    }
    return kernel;
}

bool CudaDevice::capture_active() const {
    if (current_context() == nullptr) {
        return false;
    }
    // The legacy stream cannot be captured itself; asked for it, the driver tells of captures in
    // all streams that synchronise with it.
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return driver_->cuStreamIsCapturing(CU_STREAM_LEGACY, &status) ==
           CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

void* CudaDevice::current_context() const {
    CUcontext context = nullptr;
    driver_->check(driver_->cuCtxGetCurrent(&context), "get the current context");
    return context;
}

void CudaDevice::use_context(void* context) const {
    driver_->check(driver_->cuCtxSetCurrent(static_cast<CUcontext>(context)),
                   "make a context current");
}

void CudaDevice::encode(const tensor_map::Request& request, kernel::TensorMap& map) const {
    static_assert(sizeof(kernel::TensorMap) == sizeof(CUtensorMap));
    static_assert(alignof(kernel::TensorMap) >= alignof(CUtensorMap));

    const auto element_bytes = static_cast<cuuint64_t>(tensor_map::element_bytes(request.type));
    std::array<cuuint64_t, tensor_map::rank_limit> extents{};
    std::array<cuuint32_t, tensor_map::rank_limit> box{};
    std::array<cuuint64_t, tensor_map::rank_limit - 1> strides{};
    std::array<cuuint32_t, tensor_map::rank_limit> element_strides{};
    element_strides.fill(1);
    for (std::size_t i = 0; i < extents.size(); ++i) {
        extents[i] = static_cast<cuuint64_t>(request.extents[i]);
        box[i] = static_cast<cuuint32_t>(request.box[i]);
    }
    for (std::size_t i = 0; i < strides.size(); ++i) {
        strides[i] = static_cast<cuuint64_t>(request.strides[i]) * element_bytes;
    }
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    switch (request.type) {
        case tensor_map::ElementType::bf16:
            break;
        case tensor_map::ElementType::fp16:
            type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
            break;
        case tensor_map::ElementType::fp32:
            type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
            break;
    }
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    switch (request.swizzle) {
        case tensor_map::Swizzle::none:
            break;
        case tensor_map::Swizzle::bytes_32:
            swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
            break;
        case tensor_map::Swizzle::bytes_64:
            swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
            break;
        case tensor_map::Swizzle::bytes_128:
            swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
            break;
    }
    const CUresult result = driver_->cuTensorMapEncodeTiled(
        reinterpret_cast<CUtensorMap*>(&map), type, static_cast<cuuint32_t>(request.rank),
        const_cast<void*>(request.address), extents.data(), strides.data(), box.data(),
        element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) {
        driver_->check(result, "encode a tensor map (cuTensorMapEncodeTiled)");
    }
}

void* CudaDevice::allocate(std::size_t bytes) {
    CUdeviceptr address = 0;
    driver_->check(driver_->cuMemAlloc(&address, bytes),
                   fmt::format("allocate {} bytes of device memory", bytes));
    return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

void CudaDevice::release(void* memory) noexcept {
    if (memory != nullptr) {
        // A driver that has shut down has freed it by itself.
        driver_->cuMemFree(device_pointer(memory));
    }
}

void CudaDevice::copy_to_device(void* destination, std::span<const std::byte> source) {
    driver_->check(driver_->cuMemcpyHtoD(device_pointer(destination), source.data(), source.size()),
                   "copy to device memory");
    // The copy of pageable memory may still be under way, and a non-blocking stream does not wait
    // for it.
    driver_->check(driver_->cuCtxSynchronize(), "wait for a copy to device memory");
}

void CudaDevice::copy_to_host(std::span<std::byte> destination, const void* source) {
    driver_->check(
        driver_->cuMemcpyDtoH(destination.data(), device_pointer(source), destination.size()),
        "copy from device memory");
}

void CudaDevice::fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) {
    driver_->check(driver_->cuMemsetD8Async(device_pointer(destination), byte, bytes, stream),
                   "fill device memory");
}

void CudaDevice::fill_rows(void* destination, std::size_t pitch, std::uint8_t byte,
                           std::size_t row_bytes, std::size_t rows, Stream stream) {
    driver_->check(driver_->cuMemsetD2D8Async(device_pointer(destination), pitch, byte, row_bytes,
                                              rows, stream),
                   "fill rows of device memory");
}

void CudaDevice::synchronise(Stream stream) {
    driver_->check(driver_->cuStreamSynchronize(stream), "synchronise with the stream");
}

double CudaDevice::time(Stream stream, const std::function<void()>& enqueue) {
    const Event start(*driver_);
    const Event stop(*driver_);
    start.record(stream);
    enqueue();
    stop.record(stream);
    driver_->check(driver_->cuEventSynchronize(stop.handle()), "wait for an event");
    float milliseconds = 0;
    driver_->check(driver_->cuEventElapsedTime(&milliseconds, start.handle(), stop.handle()),
                   "read the time between two events");
    return milliseconds;
}

}  // namespace backlight::device
