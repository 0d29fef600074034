#include "emulation/device_memory.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace backlight::emulation {

namespace {
constexpr std::size_t alignment = 256;
}

DeviceMemory::~DeviceMemory() {
    for (const auto& [address, allocation] : allocations_) {
        // The list holds addresses, so that accesses can be looked up by number.
        std::free(reinterpret_cast<void*>(address));  // NOLINT(performance-no-int-to-ptr)
    }
}

void* DeviceMemory::allocate(std::size_t bytes) {
    // Not aligned_alloc: its size must be a multiple of the alignment, and AddressSanitizer could
    // not tell an access just beyond the last byte.
    void* memory = nullptr;
    if (::posix_memalign(&memory, alignment, bytes > 0 ? bytes : 1) != 0) {
        throw std::bad_alloc();
    }
    // Fresh memory of a GPU holds anything; this is a NaN in every type.
    std::memset(memory, 0xff, bytes);
    const std::lock_guard lock(mutex_);
    allocations_.emplace(reinterpret_cast<std::uintptr_t>(memory), Allocation{bytes, ++allocated_});
    return memory;
}

void DeviceMemory::release(void* memory) noexcept {
    if (memory == nullptr) {
        return;
    }
    {
        const std::lock_guard lock(mutex_);
        allocations_.erase(reinterpret_cast<std::uintptr_t>(memory));
    }
    std::free(memory);
}

std::string DeviceMemory::check(const void* address, std::size_t bytes) const {
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    {
        const std::lock_guard lock(mutex_);
        auto next = allocations_.upper_bound(first);
        if (next != allocations_.begin()) {
            const auto& [start, allocation] = *--next;
            if (first - start <= allocation.bytes && bytes <= allocation.bytes - (first - start)) {
                return {};
            }
        }
    }
    return fmt::format("{} bytes at {} they must lie within one allocation", bytes, place(address));
}

std::string DeviceMemory::place(const void* address) const {
    const auto first = reinterpret_cast<std::uintptr_t>(address);
    const std::lock_guard lock(mutex_);
    auto next = allocations_.upper_bound(first);
    if (next == allocations_.begin()) {
        return "a global address before every allocation:";
    }
    const auto& [start, allocation] = *--next;
    return fmt::format("offset {} of the global allocation {} ({} bytes):", first - start,
                       allocation.number, allocation.bytes);
}

}  // namespace backlight::emulation
