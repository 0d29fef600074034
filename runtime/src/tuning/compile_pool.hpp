#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "backlight/runtime.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::tuning {

/// Compiles configurations ahead of their use, in order, on a bounded number of threads. What has
/// not been begun when it is destroyed never is.
class CompilePool {
  public:
    using Compile = std::function<KernelResources(const TileConfig&)>;

    CompilePool(std::vector<TileConfig> configs, int threads, Compile compile);
    ~CompilePool();
    CompilePool(const CompilePool&) = delete;
    CompilePool& operator=(const CompilePool&) = delete;

    /// Waits for the configuration of that number; throws what its compilation threw. Once for each
    /// number.
    KernelResources wait(std::size_t index) { return results_[index].get_future().get(); }

  private:
    void work();

    std::vector<TileConfig> configs_;
    Compile compile_;
    std::vector<std::promise<KernelResources>> results_;
    std::atomic<std::size_t> next_ = 0;
    std::vector<std::thread> threads_;
};

}  // namespace backlight::tuning
