#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/export.h"
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

struct TuneOptions;
struct TuneReport;

/// What the compiler reported of one kernel.
struct KernelResources {
    std::string kernel;
    std::string target;
    int registers = 0;
    int stack_bytes = 0;
    int spill_store_bytes = 0;
    int spill_load_bytes = 0;
    /// The compiler's messages that the kernel is slower than its source says (ptxas's C75xx, such
    /// as "wgmma serialized"); a kernel of this library that has any has a fault.
    std::vector<std::string> performance_warnings = {};
    /// Static and dynamic shared memory of a thread block.
    std::size_t shared_bytes = 0;
    int threads = 0;
    /// Thread blocks that fit on a multiprocessor of the target at once.
    int blocks_per_multiprocessor = 0;
    /// Time the compiler took in this process; 0 where the cubin was in a layer of the cache.
    double compile_milliseconds = 0;
    /// The cubin came from the memory or disk cache.
    bool cached = false;
};

/// A backward made ready for one problem on one kind of device: kernels compiled and loaded, launch
/// shapes computed. Immutable and safe to share between threads; keeps what it needs of the Runtime
/// alive.
class BACKLIGHT_API BackwardPlan {
  public:
    virtual ~BackwardPlan() = default;

    virtual const AttentionProblem& problem() const noexcept = 0;
    virtual const TileConfig& config() const noexcept = 0;

    /// Bytes of device memory that `run` needs as scratch, exactly; the pointer must be 256-byte
    /// aligned, or null where no bytes are needed. Two runs that may overlap in time need a
    /// workspace each.
    virtual std::size_t workspace_bytes() const noexcept = 0;

    /// Registers, spills and shared memory of the delta and main kernels and, where there is one,
    /// the convert kernel, in launch order; none of a problem without scores (a length of 0), whose
    /// gradients are filled with zeros.
    virtual const std::vector<KernelResources>& resources() const noexcept = 0;

    /// Enqueues the whole backward on `stream`: no allocation, no synchronisation, no lock; may be
    /// captured into a CUDA graph. Throws before anything is launched if a tensor or the workspace
    /// breaks a rule (`invalid_argument`, `workspace_too_small`), and `driver_failed` if the driver
    /// refuses a launch. The outputs are complete when the stream reaches the end of the work.
    virtual void run(const BackwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
                     Stream stream) const = 0;
};

/// What happens where a kernel is in no layer of the cache.
enum class CompilePolicy {
    /// It is compiled.
    allow,
    /// It is compiled, and a warning tells which entry of the cache comes nearest and what differs.
    warn,
    /// The call is refused with `compile_forbidden`. NVRTC is not opened, let alone used.
    forbid,
};

BACKLIGHT_API const char* to_string(CompilePolicy policy) noexcept;

/// A read-only place of compiled kernels: a directory or a pack file by its path, or a pack in
/// memory. One that is missing, damaged or not to be trusted holds nothing.
struct CacheLayer {
    /// For counters and messages; the path where it is empty.
    std::string name = {};
    std::filesystem::path path = {};
    /// Must outlive the Runtime.
    std::span<const std::byte> pack = {};
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
    /// File of the tuning database (`BACKLIGHT_TUNING_PATH`, else "<cache directory>.tuning.json";
    /// without a cache directory, tuning lasts as long as the Runtime).
    std::filesystem::path tuning_database = {};
    /// Looked in before the directory, in this order; then those of `BACKLIGHT_CACHE_LAYERS`, paths
    /// separated by ':'.
    std::vector<CacheLayer> cache_layers = {};
    /// The directory keeps to so many bytes: what was not used for longest goes first.
    std::uint64_t cache_byte_limit = std::uint64_t{1} << 30U;
    /// The stricter of this and `BACKLIGHT_COMPILE_POLICY` (allow, warn, forbid) is in force.
    CompilePolicy compile_policy = CompilePolicy::allow;
    /// Kernels that are compiled at the same time; 0: one a core.
    int compile_threads = 0;
};

/// Kernels that a layer of the cache had.
struct LayerHits {
    /// The layer's name, else its path.
    std::string name;
    std::uint64_t hits = 0;

    bool operator==(const LayerHits&) const = default;
};

/// Counts since the Runtime was made.
struct RuntimeCounters {
    /// Kernels that were in memory, or that another thread was compiling.
    std::uint64_t memory_hits = 0;
    /// In the order in which the layers are looked in; the directory that is written comes last.
    std::vector<LayerHits> hits_by_layer = {};
    /// Kernels that no layer had.
    std::uint64_t misses = 0;
    std::uint64_t compiles = 0;
    /// All compiles together, each as long as it took.
    double compile_milliseconds = 0;
    /// Compiled kernels that were written to the directory, and those that could not be.
    std::uint64_t stores = 0;
    std::uint64_t failed_stores = 0;
    /// Removed to keep to `cache_byte_limit`.
    std::uint64_t evictions = 0;
    /// Bad entries that were removed, also those that the driver refused.
    std::uint64_t repairs = 0;
    std::uint64_t tensor_maps_encoded = 0;

    /// Of all layers.
    BACKLIGHT_API std::uint64_t layer_hits() const noexcept;
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
    /// a kernel must be compiled, or when its version, by which cached kernels are found, is not
    /// remembered yet.
    BACKLIGHT_API explicit Runtime(const RuntimeOptions& options = {});
    /// Internal: a Runtime over a device and a compiler that were chosen already, for devices that
    /// are no CUDA devices. `implementation` must not be null.
    BACKLIGHT_API explicit Runtime(std::shared_ptr<Implementation> implementation);
    BACKLIGHT_API ~Runtime();
    /// A Runtime that has been moved from may only be destroyed or assigned to.
    BACKLIGHT_API Runtime(Runtime&&) noexcept;
    BACKLIGHT_API Runtime& operator=(Runtime&&) noexcept;

    /// The plan for a problem with the configuration that was tuned for it or its like, else that
    /// shipped for the card, else the best guess (docs/tuning.md). Plans are kept: asking again
    /// costs a lookup, and gives the same until `tune` has found another.
    BACKLIGHT_API std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem);
    /// The plan with a configuration of the caller's: a preset (`kernel_preset("v3")`) or any other
    /// that the geometry allows. Plans are kept: asking again costs a lookup.
    BACKLIGHT_API std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem,
                                                               const TileConfig& config);

    /// As `backward`, and makes the kernels' code ready in the calling thread's current context,
    /// also where the plan was made in another: after it, no run in that context compiles or loads
    /// anything. Needed before a graph capture, during which `backward` refuses with
    /// `capture_active` to make a plan that needs either.
    BACKLIGHT_API std::shared_ptr<const BackwardPlan> prepare(const AttentionProblem& problem);
    BACKLIGHT_API std::shared_ptr<const BackwardPlan> prepare(const AttentionProblem& problem,
                                                              const TileConfig& config);

    /// The same on a thread of the Runtime's, in the context that is current in the calling thread
    /// now and must outlive the work. The future gives the plan, or the reason why there is none.
    /// The Runtime's destructor waits for it.
    BACKLIGHT_API std::shared_future<std::shared_ptr<const BackwardPlan>> prepare_async(
        const AttentionProblem& problem);
    BACKLIGHT_API std::shared_future<std::shared_ptr<const BackwardPlan>> prepare_async(
        const AttentionProblem& problem, const TileConfig& config);

    /// Times configurations on the device, keeps the figures in the tuning database, and lets
    /// `backward(problem)` use the best. Needs `backlight/tuning.hpp`. Work and memory are the
    /// tuner's own; other work on the device spoils the figures. The device's context must be
    /// current in the calling thread.
    BACKLIGHT_API TuneReport tune(const AttentionProblem& problem, const TuneOptions& options);

    /// For example "sm_90a".
    BACKLIGHT_API const std::string& target() const noexcept;
    BACKLIGHT_API const std::string& device_name() const noexcept;
    BACKLIGHT_API RuntimeCounters counters() const;

    Implementation& implementation() noexcept { return *implementation_; }

  private:
    std::shared_ptr<Implementation> implementation_;
};

}  // namespace backlight
