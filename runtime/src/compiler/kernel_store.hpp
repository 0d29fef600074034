#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "backlight/cache/key.hpp"
#include "backlight/cache/layered_cache.hpp"
#include "backlight/cache/single_flight.hpp"
#include "backlight/runtime.hpp"
#include "compiler/backend.hpp"
#include "compiler/nvrtc_backend.hpp"
#include "compiler/task_pool.hpp"

namespace backlight::compiler {

struct KernelLookup {
    std::shared_ptr<const CompiledKernel> kernel;
    /// It was in memory or in a layer of the cache.
    bool cached = false;
};

/// As in RuntimeOptions, with nothing taken from the environment.
struct KernelStoreOptions {
    std::string nvrtc_path = {};
    /// Another compiler than NVRTC.
    std::shared_ptr<Backend> backend = nullptr;
    std::vector<CacheLayer> cache_layers = {};
    /// Empty: compiled kernels are kept in memory only.
    std::filesystem::path cache_directory = {};
    std::uint64_t cache_byte_limit = std::uint64_t{1} << 30U;
    CompilePolicy compile_policy = CompilePolicy::allow;
    /// Kernels that are compiled at the same time; 0: one a core.
    int compile_threads = 0;
    /// How long one process waits for another that compiles the same kernel, before it compiles it
    /// as well.
    std::chrono::milliseconds lock_timeout = std::chrono::seconds(60);
};

/// Gets compiled kernels: from memory, else from a layer of the cache, else from the compiler. Each
/// kernel is compiled once, however many threads and processes ask for it at the same time.
///
/// A kernel is found under the version of the compiler at hand. Where that may not be used, or
/// cannot be opened, one that another version made is as good: the newest in the first layer that
/// has any is taken.
class KernelStore {
  public:
    explicit KernelStore(KernelStoreOptions options);

    KernelLookup get(const KernelRequest& request);
    /// All of them, in that order; those that must be compiled, at the same time. Throws what the
    /// first of those that failed threw.
    std::vector<KernelLookup> get_all(std::span<const KernelRequest> requests);

    /// The kernel if it is in memory, where `get` would neither read a file nor compile; else null.
    std::shared_ptr<const CompiledKernel> in_memory(const KernelRequest& request) const;

    /// Whether `get` would find it in memory or in a layer of the cache. Counts nothing.
    bool has(const KernelRequest& request) const;

    /// Another kernel in place of one from the cache that the device refused: from a layer behind
    /// that one's, else compiled.
    KernelLookup replace(const KernelRequest& request,
                         const std::shared_ptr<const CompiledKernel>& refused);

    /// What a kernel is found by in the cache, with the version of the compiler at hand, which is
    /// opened for it.
    cache::Key key_of(const KernelRequest& request) const;
    /// The same for a compiler of that version; opens none.
    cache::Key key_of(const KernelRequest& request, const std::string& compiler_version) const;
    /// The key by which `get` would look now: see the class.
    cache::Key key_to_load(const KernelRequest& request) const { return wanted(request).key; }

    /// NVRTC, opened at the first call; for a store without a backend of the caller's.
    const Nvrtc& nvrtc() { return nvrtc_->nvrtc(); }
    /// The options that are handed to NVRTC for a target.
    static std::vector<std::string> options_for(const device::Target& target) {
        return NvrtcBackend::options_for(target);
    }
    /// The PTX of a request: for tests and reading.
    std::string ptx(const KernelRequest& request) { return nvrtc_->ptx(request); }

    cache::LayeredCache& cache() noexcept { return cache_; }
    const cache::LayeredCache& cache() const noexcept { return cache_; }
    /// Of the cache's layers, in their order.
    const std::vector<std::string>& layer_names() const noexcept { return layer_names_; }
    CompilePolicy compile_policy() const noexcept { return policy_; }
    TaskPool& tasks() noexcept { return tasks_; }

    /// All that the store knows of them.
    RuntimeCounters counters() const;
    std::uint64_t compiles() const noexcept { return compiles_; }
    std::uint64_t memory_hits() const noexcept { return memory_hits_; }
    /// Of all layers.
    std::uint64_t layer_hits() const { return counters().layer_hits(); }

  private:
    using Result = std::shared_ptr<const CompiledKernel>;

    struct Wanted {
        cache::Key key;
        /// Why there is no compiler; null where there is one, and where it is forbidden to use it.
        std::exception_ptr no_compiler = nullptr;
    };
    Wanted wanted(const KernelRequest& request) const;
    /// A key that a layer has, of whatever compiler's version.
    std::optional<cache::Key> any_version(const KernelRequest& request) const;
    /// Versions of compilers that made what a layer holds, the newest first.
    std::vector<std::string> versions_in(std::size_t layer, bool look_again) const;

    /// Out of the cache, else compiled.
    Result obtain(const KernelRequest& request);
    Result usable(std::optional<cache::LayerHit> hit, const cache::Key& key,
                  const KernelRequest& request);
    void require_compiler(const KernelRequest& request, const Wanted& wanted) const;
    /// Compiled by this process, unless another did so meanwhile.
    Result compile_once(const KernelRequest& request, const cache::Key& key);
    Result compile(const KernelRequest& request, const cache::Key& key);

    Result in_memory(const std::string& name) const;
    void keep(const std::string& name, Result kernel);
    KernelLookup get(const KernelRequest& request, const std::string& name);

    std::shared_ptr<NvrtcBackend> nvrtc_;
    std::shared_ptr<Backend> backend_;
    CompilePolicy policy_;
    std::chrono::milliseconds lock_timeout_;
    std::vector<std::string> layer_names_;
    cache::LayeredCache cache_;
    cache::SingleFlight<Result> flights_;

    mutable std::shared_mutex kernels_mutex_;
    std::unordered_map<std::string, Result> kernels_;  // by what names a request

    mutable std::mutex versions_mutex_;
    mutable std::vector<std::optional<std::vector<std::string>>> versions_;  // by layer

    std::atomic<std::uint64_t> compiles_ = 0;
    std::atomic<double> compile_milliseconds_ = 0;
    std::atomic<std::uint64_t> memory_hits_ = 0;

    /// As many compiles at a time as the pool has threads, whichever threads ask for them.
    std::counting_semaphore<> slots_;
    // Last, so that its threads end before what they use.
    TaskPool tasks_;
};

}  // namespace backlight::compiler
