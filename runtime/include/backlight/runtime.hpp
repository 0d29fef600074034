#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "backlight/tile_config.hpp"

/// The driver's stream type, declared as cuda.h does, so that this header needs no CUDA header. A
/// cudaStream_t is the same type.
extern "C" {
struct CUstream_st;
}

namespace backlight {

/// A CUstream or cudaStream_t; null is the current context's default stream.
using Stream = CUstream_st*;

/// What the compiler reported of one kernel.
struct KernelResources {
    std::string kernel;
    std::string target;
    int registers = 0;
    int stack_bytes = 0;
    int spill_store_bytes = 0;
    int spill_load_bytes = 0;
    /// Static and dynamic shared memory of a thread block.
    std::size_t shared_bytes = 0;
    int threads = 0;
    /// Thread blocks that fit on a multiprocessor of the target at once.
    int blocks_per_multiprocessor = 0;
    /// Time NVRTC took; for a cubin from the cache, when it was made.
    double compile_milliseconds = 0;
    /// The cubin came from the memory or disk cache.
    bool cached = false;
};

/// A backward made ready for one problem on one kind of device: kernels compiled and loaded, launch
/// shapes computed. Immutable and safe to share between threads; keeps what it needs of the Runtime
/// alive.
class BackwardPlan {
  public:
    virtual ~BackwardPlan() = default;

    virtual const AttentionProblem& problem() const noexcept = 0;
    virtual const TileConfig& config() const noexcept = 0;

    /// Bytes of device memory that `run` needs as scratch, exactly; the pointer must be 256-byte
    /// aligned. Two runs that may overlap in time need a workspace each.
    virtual std::size_t workspace_bytes() const noexcept = 0;

    /// Registers, spills and shared memory of the delta, main and convert kernels, in launch order.
    virtual const std::vector<KernelResources>& resources() const noexcept = 0;

    /// Enqueues the whole backward on `stream`: no allocation, no synchronisation, no lock; may be
    /// captured into a CUDA graph. Throws before anything is launched if a tensor or the workspace
    /// breaks a rule (`invalid_argument`, `workspace_too_small`), and `driver_failed` if the driver
    /// refuses a launch. The outputs are complete when the stream reaches the end of the work.
    virtual void run(const BackwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
                     Stream stream) const = 0;
};

/// Where the pieces come from. Empty values mean: the environment variable, then the usual places.
struct RuntimeOptions {
    /// CUDA device ordinal.
    int device = 0;
    /// libcuda.so.1 (`BACKLIGHT_DRIVER_PATH`).
    std::string driver_path = {};
    /// libnvrtc (`BACKLIGHT_NVRTC_PATH`).
    std::string nvrtc_path = {};
    /// Directory of the cubin cache (`BACKLIGHT_CACHE_PATH`, else $XDG_CACHE_HOME/backlight, else
    /// ~/.cache/backlight).
    std::filesystem::path cache_directory = {};
    /// Keep cubins in memory only.
    bool disable_disk_cache = false;
};

/// Counts since the Runtime was made.
struct RuntimeCounters {
    std::uint64_t compiles = 0;
    std::uint64_t memory_hits = 0;
    std::uint64_t disk_hits = 0;
    std::uint64_t tensor_maps_encoded = 0;
};

/// Owns a device, a compiler and a cubin cache, and makes plans. Safe to use from many threads.
///
///     backlight::Runtime runtime;
///     auto plan = runtime.backward({.batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096,
///                                   .head_dim = 128, .causal = true});
///     plan->run(tensors, workspace, plan->workspace_bytes(), stream);
///
/// A Runtime serves every GPU of its device's compute capability in the process: kernels are loaded
/// context-independently, and run in the context of the stream.
class Runtime {
  public:
    /// Internal: defined in no installed header.
    class Implementation;

    /// Throws `driver_not_found`, `device_not_found` or `unsupported_device`. NVRTC is opened when
    /// the first plan is made: its version is part of what a cached kernel is found by.
    explicit Runtime(const RuntimeOptions& options = {});
    /// Internal: a Runtime over a device and a compiler that were chosen already, for devices that
    /// are no CUDA devices. `implementation` must not be null.
    explicit Runtime(std::shared_ptr<Implementation> implementation);
    ~Runtime();
    /// A Runtime that has been moved from may only be destroyed or assigned to.
    Runtime(Runtime&&) noexcept;
    Runtime& operator=(Runtime&&) noexcept;

    /// The plan for a problem with the device's default configuration.
    std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem);
    /// The plan with a configuration of the caller's: a preset (`kernel_preset("v3")`) or any other
    /// that the geometry allows. Plans are kept: asking again costs a lookup.
    std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem,
                                                 const TileConfig& config);

    /// For example "sm_90a".
    const std::string& target() const noexcept;
    const std::string& device_name() const noexcept;
    RuntimeCounters counters() const noexcept;

    Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace backlight
