#pragma once

#include <memory>

#include "device/device.hpp"
#include "emulation/emulated_runtime.hpp"
#include "emulation/launch_queue.hpp"

namespace backlight::emulation {

/// A device that executes kernels on the host: memory is the host's, a stream any value of Stream.
class EmulatedDevice final : public device::Device {
  public:
    /// Throws `invalid_argument` for an unknown target.
    explicit EmulatedDevice(const EmulationOptions& options);

    const device::DeviceProperties& properties() const noexcept override { return properties_; }
    std::shared_ptr<const device::Kernel> load(std::span<const std::byte> object, const char* entry,
                                               std::size_t dynamic_shared_bytes) override;
    void encode(const tensor_map::Request& request, kernel::TensorMap& map) const override;
    void* allocate(std::size_t bytes) override;
    void release(void* memory) noexcept override;
    void copy_to_device(void* destination, std::span<const std::byte> source) override;
    void copy_to_host(std::span<std::byte> destination, const void* source) override;
    void fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) override;
    void fill_rows(void* destination, std::size_t pitch, std::uint8_t byte, std::size_t row_bytes,
                   std::size_t rows, Stream stream) override;
    /// Runs what was launched into the stream; throws KernelFault if a kernel did what it must not.
    void synchronise(Stream stream) override;
    /// Time of the host, which tells nothing about a GPU.
    double time(Stream stream, const std::function<void()>& enqueue) override;

    /// From now on the device schedules as a fresh one of that seed would.
    void reseed(std::uint64_t seed) { queue_->reseed(seed); }

    /// What was counted so far, where the options ask for it.
    std::vector<BankConflictCount> bank_conflicts() const;

  private:
    device::DeviceProperties properties_;
    std::shared_ptr<LaunchQueue> queue_;
};

}  // namespace backlight::emulation
