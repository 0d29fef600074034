#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "backlight/cache/key.hpp"
#include "compiler/nvrtc.hpp"
#include "compiler/resource_usage.hpp"
#include "device/target.hpp"

namespace backlight::compiler {

/// A kernel to be had: an embedded source with its specialisation.
struct KernelRequest {
    /// The embedded file, for example "attention_backward_mma.cu".
    std::string source;
    /// The extern "C" function in it.
    std::string entry;
    /// The text of "specialisation.cuh".
    std::string specialisation;
    device::Target target;
};

struct CompiledKernel {
    std::vector<std::byte> cubin;
    ResourceUsage resources;
    double compile_milliseconds = 0;
};

struct KernelLookup {
    std::shared_ptr<const CompiledKernel> kernel;
    /// It was in memory or on disk.
    bool cached = false;
};

struct KernelStoreOptions {
    std::string nvrtc_path;
    /// Empty: memory only.
    std::filesystem::path cache_directory;
};

/// Gets compiled kernels: from memory, else from disk, else from NVRTC. Each kernel is compiled
/// once however many threads ask for it at the same time.
class KernelStore {
  public:
    explicit KernelStore(KernelStoreOptions options);

    KernelLookup get(const KernelRequest& request);

    /// NVRTC, opened at the first call.
    const Nvrtc& nvrtc();

    /// The options that are handed to NVRTC for a target.
    static std::vector<std::string> options_for(const device::Target& target);
    /// The PTX of a request: for tests and reading.
    std::string ptx(const KernelRequest& request);

    const cache::DiskCache* disk() const noexcept { return disk_ ? &*disk_ : nullptr; }
    std::uint64_t compiles() const noexcept { return compiles_; }
    std::uint64_t memory_hits() const noexcept { return memory_hits_; }
    std::uint64_t disk_hits() const noexcept { return disk_hits_; }

  private:
    using Result = std::shared_future<std::shared_ptr<const CompiledKernel>>;

    std::shared_ptr<const CompiledKernel> load_or_compile(const KernelRequest& request,
                                                          const cache::Key& key, bool& from_disk);
    cache::Key key_of(const KernelRequest& request);

    KernelStoreOptions options_;
    std::optional<cache::DiskCache> disk_;

    std::mutex nvrtc_mutex_;
    std::unique_ptr<const Nvrtc> nvrtc_;

    std::mutex kernels_mutex_;
    std::unordered_map<std::string, Result> kernels_;  // by key text

    std::atomic<std::uint64_t> compiles_ = 0;
    std::atomic<std::uint64_t> memory_hits_ = 0;
    std::atomic<std::uint64_t> disk_hits_ = 0;
};

}  // namespace backlight::compiler
