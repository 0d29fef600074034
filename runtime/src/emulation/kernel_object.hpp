#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "emulation/device_headers/emulator/machine.h"

namespace backlight::emulation {

/// A kernel compiled for the host, loaded into the process.
class KernelObject {
  public:
    /// Throws `file_error` if the bytes are no kernel object of this build's kind.
    KernelObject(std::span<const std::byte> bytes, std::string entry);
    ~KernelObject();
    KernelObject(const KernelObject&) = delete;
    KernelObject& operator=(const KernelObject&) = delete;

    const std::string& entry() const noexcept { return entry_; }
    std::size_t arguments_bytes() const noexcept { return arguments_bytes_; }
    /// The dynamic shared memory of the calling host thread: `shared_memory_bytes` of it.
    std::byte* shared_memory() const { return shared_memory_(); }
    using RunThread = void (*)(const void* arguments);
    RunThread run_thread() const noexcept { return run_thread_; }

    /// What any block may have: all that the largest device gives.
    static constexpr std::size_t shared_memory_bytes = std::size_t{227} * 1024;

  private:
    std::string entry_;
    void* handle_ = nullptr;
    std::size_t arguments_bytes_ = 0;
    std::byte* (*shared_memory_)() = nullptr;
    RunThread run_thread_ = nullptr;
};

}  // namespace backlight::emulation
