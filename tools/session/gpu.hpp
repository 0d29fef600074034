#pragma once

#include <cuda.h>

#include <memory>

#include "backlight/runtime.hpp"
#include "device/cuda_device.hpp"
#include "device/driver_api.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// A session on a CUDA device: the device's primary context, made current in the constructing
/// thread, a stream of it, and the driver. The library itself needs none of this.
class Gpu final : public Session {
  public:
    explicit Gpu(const RuntimeOptions& options = {});
    ~Gpu() override;

    const device::DriverApi& driver() const noexcept { return *driver_; }
    const device::CudaDevice& cuda_device() const noexcept { return *cuda_device_; }

    /// Makes the primary context current in the calling thread too.
    void make_current() const;

  private:
    std::shared_ptr<const device::DriverApi> driver_;
    const device::CudaDevice* cuda_device_ = nullptr;
    CUcontext context_ = nullptr;
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
