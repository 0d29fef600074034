#include "gpu/gpu.hpp"

#include <utility>

#include "backlight/error.hpp"
#include "compiler/kernel_store.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

Gpu::Gpu(const RuntimeOptions& options) {
    const RuntimeOptions resolved = with_environment(options);
    runtime_ = std::make_unique<Runtime>(options);
    // A Runtime of the public constructor always sits on a CUDA device.
    device_ = &dynamic_cast<device::CudaDevice&>(runtime_->implementation().device());
    driver_ = device::open_driver(resolved.driver_path);
    handle_ = device_->handle();
    driver_->check(driver_->cuDevicePrimaryCtxRetain(&context_, handle_),
                   "retain the primary context");
    try {
        make_current();
        driver_->check(driver_->cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                       "create a stream");
    } catch (...) {
        driver_->cuDevicePrimaryCtxRelease(handle_);
        throw;
    }
}

Gpu::~Gpu() {
    driver_->cuStreamDestroy(stream_);
    driver_->cuDevicePrimaryCtxRelease(handle_);
}

void Gpu::make_current() const {
    driver_->check(driver_->cuCtxSetCurrent(context_), "make the primary context current");
}

void Gpu::synchronise() const {
    driver_->check(driver_->cuStreamSynchronize(stream_), "synchronise with the stream");
}

std::shared_ptr<const device::Kernel> Gpu::kernel(const std::string& source,
                                                  const std::string& entry,
                                                  const std::string& specialisation,
                                                  std::size_t dynamic_shared_bytes) {
    const compiler::KernelLookup compiled =
        runtime_->implementation().store().get({.source = source,
                                                .entry = entry,
                                                .specialisation = specialisation,
                                                .target = device_->properties().target});
    auto kernel = device_->load(compiled.kernel->cubin, entry.c_str(), dynamic_shared_bytes);
    kernel->prepare();
    return kernel;
}

DeviceBuffer::DeviceBuffer(const Gpu& gpu, std::size_t bytes) : gpu_(&gpu), bytes_(bytes) {
    gpu.driver().check(gpu.driver().cuMemAlloc(&address_, bytes),
                       "allocate " + std::to_string(bytes) + " bytes of device memory");
}

DeviceBuffer::~DeviceBuffer() {
    if (address_ != 0) {
        gpu_->driver().cuMemFree(address_);
    }
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : gpu_(other.gpu_), address_(std::exchange(other.address_, 0)), bytes_(other.bytes_) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

void DeviceBuffer::upload(std::span<const std::byte> host, std::size_t offset) {
    const device::DriverApi& driver = gpu_->driver();
    driver.check(driver.cuMemcpyHtoD(address_ + offset, host.data(), host.size()),
                 "copy to device memory");
    // The copy of pageable memory may still be under way, and a non-blocking stream does not wait
    // for it.
    driver.check(driver.cuCtxSynchronize(), "wait for a copy to device memory");
}

void DeviceBuffer::download(std::span<std::byte> host, std::size_t offset) const {
    gpu_->driver().check(gpu_->driver().cuMemcpyDtoH(host.data(), address_ + offset, host.size()),
                         "copy from device memory");
}

void DeviceBuffer::fill(std::uint8_t byte, Stream stream) const {
    gpu_->driver().check(gpu_->driver().cuMemsetD8Async(address_, byte, bytes_, stream),
                         "fill device memory");
}

Event::Event(const Gpu& gpu) : gpu_(gpu) {
    gpu_.driver().check(gpu_.driver().cuEventCreate(&event_, CU_EVENT_DEFAULT), "create an event");
}

Event::~Event() {
    gpu_.driver().cuEventDestroy(event_);
}

void Event::record(Stream stream) const {
    gpu_.driver().check(gpu_.driver().cuEventRecord(event_, stream), "record an event");
}

void Event::synchronise() const {
    gpu_.driver().check(gpu_.driver().cuEventSynchronize(event_), "wait for an event");
}

double Event::milliseconds_since(const Event& earlier) const {
    float milliseconds = 0;
    gpu_.driver().check(gpu_.driver().cuEventElapsedTime(&milliseconds, earlier.event_, event_),
                        "read the time between two events");
    return milliseconds;
}

}  // namespace backlight::tool
