#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "arguments/attention_backward.h"
#include "backlight/error.hpp"
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

/// A cubin is not one that the device can use, whenever it is tried: another may do.
class CubinRefused : public Error {
  public:
    using Error::Error;
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
/// executes the same kernel sources. The library itself loads, encodes, launches and fills;
/// allocating, copying and waiting are for the tools and the tests, in whose hands the tensors are.
class Device {
  public:
    virtual ~Device() = default;

    virtual const DeviceProperties& properties() const noexcept = 0;

    /// Loads one kernel of a cubin, ready for launches with that much dynamic shared memory. Throws
    /// `CubinRefused`, or another Error where the cubin is not to blame.
    virtual std::shared_ptr<const Kernel> load(std::span<const std::byte> cubin, const char* entry,
                                               std::size_t dynamic_shared_bytes) = 0;

    /// Whether work of the calling thread's current context is known to be under capture into a
    /// graph: nothing may be loaded then. No capture is disturbed by asking. One that escapes it
    /// makes `load` fail with `capture_active`.
    virtual bool capture_active() const { return false; }

    /// The calling thread's current context, for `use_context` in another thread; null where there
    /// is none.
    virtual void* current_context() const { return nullptr; }
    virtual void use_context(void* /*context*/) const {}

    /// Encodes a request that `tensor_map::check` has passed.
    virtual void encode(const tensor_map::Request& request, kernel::TensorMap& map) const = 0;

    /// Memory of the device, at least 256-byte aligned, of no particular content; `bytes` is 1 or
    /// more. Throws `driver_failed` where there is not so much, as all of these do on failure.
    virtual void* allocate(std::size_t bytes) = 0;
    /// Frees what `allocate` gave; null is let pass. No work that uses it may be under way.
    virtual void release(void* memory) noexcept = 0;

    /// Copies whole spans to and from memory that `allocate` gave. Both return when the bytes are
    /// in their place, for work in every stream to see; what streams still have to do with them
    /// must be waited for before.
    virtual void copy_to_device(void* destination, std::span<const std::byte> source) = 0;
    virtual void copy_to_host(std::span<std::byte> destination, const void* source) = 0;
    /// Sets every byte, in the order of the stream.
    virtual void fill(void* destination, std::uint8_t byte, std::size_t bytes, Stream stream) = 0;
    /// Sets every byte of rows that lie `pitch` bytes apart, at least as many as a row has.
    virtual void fill_rows(void* destination, std::size_t pitch, std::uint8_t byte,
                           std::size_t row_bytes, std::size_t rows, Stream stream) = 0;

    /// Waits for all that was enqueued on the stream; what a kernel did wrong is thrown here at the
    /// latest.
    virtual void synchronise(Stream stream) = 0;

    /// Milliseconds that the device takes for what `enqueue` puts into the stream, from the end of
    /// the work before it on; waits for it.
    virtual double time(Stream stream, const std::function<void()>& enqueue) = 0;
};

/// Another thread's context in this one, and this one's own again at the end.
class ContextGuard {
  public:
    ContextGuard(const Device& device, void* context)
        : device_(device), before_(device.current_context()) {
        device_.use_context(context);
    }
    ~ContextGuard() {
        try {
            device_.use_context(before_);
        } catch (const Error&) {
            // Only a context that is gone is refused: there is none to go back to.
        }
    }
    ContextGuard(const ContextGuard&) = delete;
    ContextGuard& operator=(const ContextGuard&) = delete;

  private:
    const Device& device_;
    void* before_;
};

}  // namespace backlight::device
