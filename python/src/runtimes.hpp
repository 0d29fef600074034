#pragma once

#include <memory>
#include <string>

#include "backlight/runtime.hpp"
#include "device/device.hpp"

namespace backlight::python {

/// One device as this process uses it: the Runtime that plans for it, and the context in which
/// frameworks have their tensors there (CUDA's primary context).
class DeviceRuntime {
  public:
    virtual ~DeviceRuntime() = default;

    virtual Runtime& runtime() noexcept = 0;
    virtual device::Device& device() noexcept = 0;
    /// For `device::ContextGuard`; null where devices have no contexts.
    virtual void* context() const noexcept = 0;
    /// DLPack's number of the kind of device that its memory is of: 2 is CUDA, 1 the host.
    virtual int dlpack_type() const noexcept = 0;
};

/// The device of that ordinal; opened when it is first asked for, and never closed: what runs at
/// the exit of an interpreter may still need it. Throws what the Runtime's constructor throws.
DeviceRuntime& device_runtime(int ordinal);

/// Which NVRTC devices that are opened from now on use; empty: the loader's.
void use_nvrtc(const std::string& path);

/// Whether this build has the emulated device.
bool has_emulated_device() noexcept;

/// Device 0, which is not open yet, is the emulated one, whose memory is the process's own: for
/// tests without a GPU. Throws `unsupported` in a build without it.
void emulate_device(const std::string& target);

/// The device's context in the calling thread for as long as this lives. Nothing is changed where
/// it is current already, as it mostly is in a thread of PyTorch's.
class ContextScope {
  public:
    explicit ContextScope(DeviceRuntime& of);
    ~ContextScope();
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;

  private:
    const device::Device& device_;
    void* before_;
    bool changed_;
};

}  // namespace backlight::python
