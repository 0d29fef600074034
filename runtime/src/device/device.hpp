#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "arguments/attention_backward.h"
#include "backlight/runtime.hpp"
#include "device/target.hpp"
#include "tensor_map/tensor_map.hpp"

namespace backlight::device {

struct DeviceProperties {
    std::string name;
    Target target;
    int multiprocessors = 0;
    std::size_t memory_bytes = 0;
    std::size_t l2_bytes = 0;
    /// Highest clock of the multiprocessors and of the memory, in kHz, and the width of the memory
    /// bus in bits; 0 where the device does not say.
    int clock_khz = 0;
    int memory_clock_khz = 0;
    int memory_bus_bits = 0;
};

/// The shape of a launch. Grids are one-dimensional: kernels divide the block number themselves,
/// which leaves no 65,535 limit on heads or batch.
struct LaunchShape {
    std::uint32_t blocks = 1;
    std::uint32_t threads = 1;
    std::uint32_t dynamic_shared_bytes = 0;
    /// The kernel may start while the one before it in the stream drains; it waits by itself for
    /// what it needs of that one (griddepcontrol.wait).
    bool may_start_early = false;
};

/// A loaded kernel. If it exists, it can be launched; safe to use from many threads.
class Kernel {
  public:
    virtual ~Kernel() = default;

    /// Makes the kernel's code ready in the calling thread's current context, if there is one, so
    /// that no launch has to: a capture must not.
    virtual void prepare() const {}

    /// Enqueues the kernel with its one argument structure, which is copied before the call
    /// returns.
    virtual void launch(const LaunchShape& shape, const void* arguments, Stream stream) const = 0;
};

/// Where kernels run: the one interface between the library and a CUDA device, or any other that
/// executes the same kernel sources.
class Device {
  public:
    virtual ~Device() = default;

    virtual const DeviceProperties& properties() const noexcept = 0;

    /// Loads one kernel of a cubin, ready for launches with that much dynamic shared memory.
    virtual std::shared_ptr<const Kernel> load(std::span<const std::byte> cubin, const char* entry,
                                               std::size_t dynamic_shared_bytes) = 0;

    /// Encodes a request that `tensor_map::check` has passed.
    virtual void encode(const tensor_map::Request& request, kernel::TensorMap& map) const = 0;
};

}  // namespace backlight::device
