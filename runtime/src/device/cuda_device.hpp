#pragma once

#include <memory>

#include "device/device.hpp"
#include "device/driver_api.hpp"

namespace backlight::device {

/// A GPU behind the CUDA driver. Makes no context: kernels are loaded context-independently
/// (CUlibrary), once for all GPUs of the same compute capability, and run in the context of the
/// stream they are given.
class CudaDevice final : public Device {
  public:
    /// Throws `device_not_found` or `unsupported_device`.
    CudaDevice(std::shared_ptr<const DriverApi> driver, int ordinal);

    const DeviceProperties& properties() const noexcept override { return properties_; }
    std::shared_ptr<const Kernel> load(std::span<const std::byte> cubin, const char* entry,
                                       std::size_t dynamic_shared_bytes) override;
    void encode(const tensor_map::Request& request, kernel::TensorMap& map) const override;

    const DriverApi& driver() const noexcept { return *driver_; }
    CUdevice handle() const noexcept { return handle_; }

  private:
    std::shared_ptr<const DriverApi> driver_;
    CUdevice handle_ = 0;
    DeviceProperties properties_;
};

}  // namespace backlight::device
