#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace backlight::emulation {

/// The global memory of the emulated device: host memory, with a list of what was allocated. Safe
/// to use from many threads.
class DeviceMemory {
  public:
    DeviceMemory() = default;
    ~DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;

    /// At least 256-byte aligned, as on a GPU. Throws std::bad_alloc.
    void* allocate(std::size_t bytes);
    /// Null is allowed; anything else must come from `allocate`.
    void release(void* memory) noexcept;

    /// Why an access would not lie within one allocation; empty where it does.
    std::string check(const void* address, std::size_t bytes) const;
    /// "offset 24 of allocation 3 (4096 bytes):", the same in every process, unlike the address.
    std::string place(const void* address) const;

  private:
    struct Allocation {
        std::size_t bytes;
        std::uint64_t number;
    };

    mutable std::mutex mutex_;
    std::map<std::uintptr_t, Allocation> allocations_;
    std::uint64_t allocated_ = 0;
};

}  // namespace backlight::emulation
