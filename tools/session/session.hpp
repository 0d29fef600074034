#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "backlight/runtime.hpp"
#include "device/device.hpp"

namespace backlight::tool {

/// A device as the command and the tests use it: a Runtime, the device under it, a stream, and
/// kernels beside those of a plan. What runs on a Session runs on any device; see `Gpu` for what
/// only a CUDA device has.
class Session {
  public:
    /// Over a device whose default stream needs nothing to be made first, such as the emulated one.
    explicit Session(Runtime runtime);
    virtual ~Session() = default;
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    Runtime& runtime() noexcept { return runtime_; }
    device::Device& device() const noexcept { return *device_; }
    Stream stream() const noexcept { return stream_; }

    void synchronise() const { device_->synchronise(stream_); }

    /// Compiles and loads a kernel of an embedded source, for example ("measurement.cu",
    /// "fill_normal"); `specialisation` may be empty for sources that include none.
    std::shared_ptr<const device::Kernel> kernel(const std::string& source,
                                                 const std::string& entry,
                                                 const std::string& specialisation = {},
                                                 std::size_t dynamic_shared_bytes = 0);

  protected:
    void use_stream(Stream stream) noexcept { stream_ = stream; }

  private:
    Runtime runtime_;
    device::Device* device_;
    Stream stream_ = nullptr;
};

}  // namespace backlight::tool
