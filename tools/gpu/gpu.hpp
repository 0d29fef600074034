#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backlight/runtime.hpp"
#include "device/cuda_device.hpp"
#include "device/driver_api.hpp"

namespace backlight::tool {

/// A GPU as the command and the tests use it: a Runtime, the device's primary context made current
/// in the constructing thread, a stream, and what is needed around kernels. The library itself
/// needs none of this.
class Gpu {
  public:
    explicit Gpu(const RuntimeOptions& options = {});
    ~Gpu();
    Gpu(const Gpu&) = delete;
    Gpu& operator=(const Gpu&) = delete;

    Runtime& runtime() noexcept { return *runtime_; }
    const device::DriverApi& driver() const noexcept { return *driver_; }
    device::CudaDevice& device() const noexcept { return *device_; }
    Stream stream() const noexcept { return stream_; }

    /// Makes the primary context current in the calling thread too.
    void make_current() const;
    void synchronise() const;

    /// Compiles and loads a kernel of an embedded source, for example ("measurement.cu",
    /// "fill_normal"); `specialisation` may be empty for sources that include none.
    std::shared_ptr<const device::Kernel> kernel(const std::string& source,
                                                 const std::string& entry,
                                                 const std::string& specialisation = {},
                                                 std::size_t dynamic_shared_bytes = 0);

  private:
    std::shared_ptr<const device::DriverApi> driver_;
    CUdevice handle_ = 0;
    CUcontext context_ = nullptr;
    std::unique_ptr<Runtime> runtime_;
    device::CudaDevice* device_ = nullptr;
    CUstream stream_ = nullptr;
};

/// Device memory. Freed in the destructor; tolerates a driver that has shut down.
class DeviceBuffer {
  public:
    DeviceBuffer() = default;
    DeviceBuffer(const Gpu& gpu, std::size_t bytes);
    ~DeviceBuffer();
    DeviceBuffer(DeviceBuffer&& other) noexcept;
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

    // A CUdeviceptr is an integer by the driver's definition.
    void* data() const noexcept {
        return reinterpret_cast<void*>(address_);  // NOLINT(performance-no-int-to-ptr)
    }
    template <typename T>
    T* as() const noexcept {
        return static_cast<T*>(data());
    }
    std::size_t bytes() const noexcept { return bytes_; }

    /// Synchronous copies of whole spans, from the buffer's byte `offset` on.
    void upload(std::span<const std::byte> host, std::size_t offset = 0);
    void download(std::span<std::byte> host, std::size_t offset = 0) const;
    template <typename T>
    void upload(const std::vector<T>& host, std::size_t offset = 0) {
        upload(std::as_bytes(std::span(host)), offset);
    }
    template <typename T>
    std::vector<T> download_all() const {
        std::vector<T> host(bytes_ / sizeof(T));
        download(std::as_writable_bytes(std::span(host)));
        return host;
    }
    /// Sets every byte, in the stream: 0xff makes NaN of bf16, fp16 and fp32 alike.
    void fill(std::uint8_t byte, Stream stream) const;

  private:
    const Gpu* gpu_ = nullptr;
    CUdeviceptr address_ = 0;
    std::size_t bytes_ = 0;
};

/// A CUDA event with timing.
class Event {
  public:
    explicit Event(const Gpu& gpu);
    ~Event();
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record(Stream stream) const;
    void synchronise() const;
    /// Milliseconds from `earlier` to this event; both must have been reached.
    double milliseconds_since(const Event& earlier) const;

  private:
    const Gpu& gpu_;
    CUevent event_ = nullptr;
};

}  // namespace backlight::tool
