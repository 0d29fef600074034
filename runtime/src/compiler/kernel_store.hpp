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
#include "compiler/backend.hpp"
#include "compiler/nvrtc_backend.hpp"

namespace backlight::compiler {

struct KernelLookup {
    std::shared_ptr<const CompiledKernel> kernel;
    /// It was in memory or on disk.
    bool cached = false;
};

struct KernelStoreOptions {
    std::string nvrtc_path = {};
    /// Empty: memory only.
    std::filesystem::path cache_directory = {};
    /// Another compiler than NVRTC.
    std::shared_ptr<Backend> backend = nullptr;
};

/// Gets compiled kernels: from memory, else from disk, else from the compiler. Each kernel is
/// compiled once however many threads ask for it at the same time.
class KernelStore {
  public:
    explicit KernelStore(KernelStoreOptions options);

    KernelLookup get(const KernelRequest& request);

    /// What a kernel is found by, in memory and on disk.
    cache::Key key_of(const KernelRequest& request);

    /// Compiles anew and replaces what is kept: for a kernel from the cache that the driver
    /// refused.
    KernelLookup recompile(const KernelRequest& request);

    /// NVRTC, opened at the first call; for a store without a backend of the caller's.
    const Nvrtc& nvrtc() { return nvrtc_->nvrtc(); }
    /// The options that are handed to NVRTC for a target.
    static std::vector<std::string> options_for(const device::Target& target) {
        return NvrtcBackend::options_for(target);
    }
    /// The PTX of a request: for tests and reading.
    std::string ptx(const KernelRequest& request) { return nvrtc_->ptx(request); }

    const cache::DiskCache* disk() const noexcept { return disk_ ? &*disk_ : nullptr; }
    std::uint64_t compiles() const noexcept { return compiles_; }
    std::uint64_t memory_hits() const noexcept { return memory_hits_; }
    std::uint64_t disk_hits() const noexcept { return disk_hits_; }

  private:
    using Result = std::shared_future<std::shared_ptr<const CompiledKernel>>;

    std::shared_ptr<const CompiledKernel> load_or_compile(const KernelRequest& request,
                                                          const cache::Key& key, bool& from_disk);
    std::shared_ptr<const CompiledKernel> compile(const KernelRequest& request,
                                                  const cache::Key& key);

    std::shared_ptr<NvrtcBackend> nvrtc_;
    std::shared_ptr<Backend> backend_;
    std::optional<cache::DiskCache> disk_;

    std::mutex kernels_mutex_;
    std::unordered_map<std::string, Result> kernels_;  // by key text

    std::atomic<std::uint64_t> compiles_ = 0;
    std::atomic<std::uint64_t> memory_hits_ = 0;
    std::atomic<std::uint64_t> disk_hits_ = 0;
};

}  // namespace backlight::compiler
