#pragma once

#include <cstddef>
#include <utility>

#include "device/device.hpp"

namespace backlight::tuning {

/// Device memory of the tuner's own, freed in the destructor; the device must outlive it.
class ScratchMemory {
  public:
    ScratchMemory() = default;
    ScratchMemory(device::Device& device, std::size_t bytes)
        : device_(&device), data_(device.allocate(bytes)), bytes_(bytes) {}
    ~ScratchMemory() {
        if (device_ != nullptr) {
            device_->release(data_);
        }
    }
    ScratchMemory(ScratchMemory&& other) noexcept { swap(other); }
    ScratchMemory& operator=(ScratchMemory&& other) noexcept {
        swap(other);
        return *this;
    }

    template <typename T = std::byte>
    T* as() const noexcept {
        return static_cast<T*>(data_);
    }
    std::size_t bytes() const noexcept { return bytes_; }

  private:
    void swap(ScratchMemory& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }

    device::Device* device_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace backlight::tuning
