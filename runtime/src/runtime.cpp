#include "backlight/runtime.hpp"

#include <cstdlib>
#include <system_error>
#include <utility>

#include "backlight/cache/disk_cache.hpp"
#include "device/cuda_device.hpp"
#include "logging.hpp"
#include "runtime_implementation.hpp"

namespace backlight {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

}  // namespace

RuntimeOptions with_environment(RuntimeOptions options) {
    if (options.driver_path.empty()) {
        options.driver_path = environment("BACKLIGHT_DRIVER_PATH");
    }
    if (options.nvrtc_path.empty()) {
        options.nvrtc_path = environment("BACKLIGHT_NVRTC_PATH");
    }
    if (options.disable_disk_cache) {
        options.cache_directory.clear();
    } else if (options.cache_directory.empty()) {
        options.cache_directory =
            cache::default_directory(std::getenv("BACKLIGHT_CACHE_PATH"),
                                     std::getenv("XDG_CACHE_HOME"), std::getenv("HOME"));
    }
    if (!options.cache_directory.empty()) {
        // A relative directory is meant from here, wherever the process goes later.
        std::error_code failure;
        const std::filesystem::path whole =
            std::filesystem::absolute(options.cache_directory, failure);
        options.cache_directory = failure ? std::filesystem::path() : whole;
    }
    return options;
}

TileConfig default_config(const AttentionProblem& /*problem*/, const device::Target& /*target*/) {
    // On the H200 as fast as v2 at head_dim 128 and faster at 64; on sm_120, where the load ahead
    // counts for more, the fastest of the three.
    return kernel_preset("v3");
}

std::size_t Runtime::Implementation::PlanKeyHash::operator()(const PlanKey& key) const noexcept {
    std::size_t hash = AttentionProblemHash{}(key.problem);
    for (const int value : {key.config.block_q, key.config.block_kv, key.config.warps,
                            key.config.stages, static_cast<int>(key.config.sequence_lengths),
                            static_cast<int>(key.config.programmatic_dependent_launch)}) {
        hash = hash * 31 + static_cast<std::size_t>(value);
    }
    return hash;
}

Runtime::Implementation::Implementation(std::shared_ptr<device::Device> device,
                                        compiler::KernelStoreOptions options)
    : loader_(std::move(device), std::move(options)),
      plan_counters_(std::make_shared<attention::ChainPlan::Counters>()) {}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::backward(
    const AttentionProblem& problem, const TileConfig& config) {
    const PlanKey key{problem, config};
    {
        const std::lock_guard lock(plans_mutex_);
        if (const auto found = plans_.find(key); found != plans_.end()) {
            return found->second;
        }
    }
    // Made without the lock: compiling takes long, and the kernel store compiles each kernel once.
    auto plan = std::make_shared<attention::ChainPlan>(problem, config, loader_, plan_counters_);
    const std::lock_guard lock(plans_mutex_);
    return plans_.try_emplace(key, std::move(plan)).first->second;
}

RuntimeCounters Runtime::Implementation::counters() const noexcept {
    return {.compiles = loader_.store().compiles(),
            .memory_hits = loader_.store().memory_hits(),
            .disk_hits = loader_.store().disk_hits(),
            .tensor_maps_encoded = plan_counters_->tensor_maps_encoded};
}

Runtime::Runtime(const RuntimeOptions& options) {
    RuntimeOptions resolved = with_environment(options);
    auto device = std::make_shared<device::CudaDevice>(device::open_driver(resolved.driver_path),
                                                       resolved.device);
    implementation_ = std::make_shared<Implementation>(
        std::move(device),
        compiler::KernelStoreOptions{.nvrtc_path = std::move(resolved.nvrtc_path),
                                     .cache_directory = std::move(resolved.cache_directory)});
}

Runtime::Runtime(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Runtime::~Runtime() = default;
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;

std::shared_ptr<const BackwardPlan> Runtime::backward(const AttentionProblem& problem) {
    return backward(problem,
                    default_config(problem, implementation_->device().properties().target));
}

std::shared_ptr<const BackwardPlan> Runtime::backward(const AttentionProblem& problem,
                                                      const TileConfig& config) {
    return implementation_->backward(problem, config);
}

const std::string& Runtime::target() const noexcept {
    return implementation_->device().properties().target.name;
}

const std::string& Runtime::device_name() const noexcept {
    return implementation_->device().properties().name;
}

RuntimeCounters Runtime::counters() const noexcept {
    return implementation_->counters();
}

}  // namespace backlight
