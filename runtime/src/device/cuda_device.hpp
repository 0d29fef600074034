#pragma once

#include <memory>

#include "device/device.hpp"
#include "device/driver_api.hpp"

namespace backlight::device {

/// A GPU behind the CUDA driver. Makes no context: kernels are loaded context-independently
/// (CUlibrary), once for all GPUs of the same compute capability, and run in the context of the
/// stream they are given. Memory belongs to the calling thread's current context, which the caller
/// has made.
class CudaDevice final : public Device {
  public:
    /// Throws `device_not_found` or `unsupported_device`.
    CudaDevice(std::shared_ptr<const DriverApi> driver, int ordinal);

    const DeviceProperties& properties() const noexcept override { return properties_; }
    std::shared_ptr<const Kernel> load(std::span<const std::byte> cubin, const char* entry,
                                       std::size_t dynamic_shared_bytes) override;
    bool capture_active() const override;
    void* current_context() const override;
    void use_context(void* context) const override;
    void encode(const tensor_map::Request& request, kernel::TensorMap& map) const override;

    void* allocate(std::size_t bytes) override;
    void release(void* memory) noexcept override;
    void copy_to_device(void* destination, std::span<const std::byte> source) override;
    void copy_to_host(std::span<std::byte> destination, const void* source) override;
    void fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) override;
    void fill_rows(void* destination, std::size_t pitch, std::uint8_t byte, std::size_t row_bytes,
                   std::size_t rows, Stream stream) override;
    void synchronise(Stream stream) override;
    double time(Stream stream, const std::function<void()>& enqueue) override;

    const DriverApi& driver() const noexcept { return *driver_; }
    CUdevice handle() const noexcept { return handle_; }

  private:
    std::shared_ptr<const DriverApi> driver_;
    CUdevice handle_ = 0;
    DeviceProperties properties_;
};

}  // namespace backlight::device
