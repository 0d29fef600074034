#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/device.hpp"
#include "emulation/bank_conflicts.hpp"
#include "emulation/device_memory.hpp"
#include "emulation/emulated_runtime.hpp"
#include "emulation/kernel_object.hpp"

namespace backlight::emulation {

/// A kernel to be run.
struct Launch {
    std::shared_ptr<const KernelObject> kernel;
    device::LaunchShape shape;
    /// Aligned as any argument may ask, and owned.
    std::shared_ptr<std::byte> arguments;
    std::uint64_t number = 0;
};

/// Memory and streams of an emulated device. Launches are kept until something waits for their
/// stream, so that a launch that may start early can be started before the one before it has ended.
class LaunchQueue {
  public:
    explicit LaunchQueue(const EmulationOptions& options) : options_(options) {}

    DeviceMemory& memory() noexcept { return memory_; }
    const BankConflicts& bank_conflicts() const noexcept { return bank_conflicts_; }

    void add(Launch launch, Stream stream);
    /// Runs what the stream holds. Throws KernelFault; what came after the fault is dropped.
    void synchronise(Stream stream);
    /// What could not be thrown where it was found: the next `synchronise` throws it.
    void keep_failure(std::exception_ptr failure);
    void synchronise_all();
    /// Runs what is queued; from now on launches are scheduled, and counted, as on a fresh device
    /// of that seed.
    void reseed(std::uint64_t seed);

  private:
    void execute(std::vector<Launch> launches);

    EmulationOptions options_;
    DeviceMemory memory_;
    BankConflicts bank_conflicts_;
    std::mutex queues_mutex_;
    std::map<Stream, std::vector<Launch>> queues_;
    std::uint64_t launches_ = 0;
    std::exception_ptr kept_failure_;
    /// One stream's work at a time.
    std::mutex execution_mutex_;
};

}  // namespace backlight::emulation
