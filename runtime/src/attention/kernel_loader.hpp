#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "attention/kernels.hpp"
#include "compiler/kernel_store.hpp"
#include "device/device.hpp"

namespace backlight::attention {

/// Compiles and loads kernels for plans. Plans that need the same kernel share what is loaded: with
/// run-time lengths a new sequence length costs neither a compilation nor device memory.
class KernelLoader {
  public:
    KernelLoader(std::shared_ptr<device::Device> device, compiler::KernelStoreOptions options)
        : device_(std::move(device)), store_(std::move(options)) {}

    struct Loaded {
        std::shared_ptr<const device::Kernel> kernel;
        compiler::KernelLookup compiled;
    };

    /// All of them, ready in the calling thread's context, in that order; what must be compiled is
    /// compiled at the same time. A kernel out of the cache that the device refuses is replaced.
    /// Throws `capture_active` where any must be compiled or loaded and that cannot be now.
    std::vector<Loaded> load(std::span<const KernelPlan> plans);

    device::Device& device() noexcept { return *device_; }
    const device::Device& device() const noexcept { return *device_; }
    const std::shared_ptr<device::Device>& shared_device() const noexcept { return device_; }
    compiler::KernelStore& store() noexcept { return store_; }
    const compiler::KernelStore& store() const noexcept { return store_; }

  private:
    void require_loaded(std::span<const KernelPlan> plans);
    Loaded load(const KernelPlan& plan, compiler::KernelLookup lookup);
    std::shared_ptr<const device::Kernel> load_compiled(
        const KernelPlan& plan, const std::shared_ptr<const compiler::CompiledKernel>& compiled);

    struct Entry {
        // Held, so that no other kernel can take its address, which is part of the map's key.
        std::shared_ptr<const compiler::CompiledKernel> compiled;
        std::weak_ptr<const device::Kernel> kernel;
    };
    using Key = std::pair<const compiler::CompiledKernel*, std::size_t>;

    std::shared_ptr<device::Device> device_;
    compiler::KernelStore store_;
    std::mutex mutex_;
    std::map<Key, Entry> loaded_;
};

}  // namespace backlight::attention
