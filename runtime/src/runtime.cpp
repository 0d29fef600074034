#include "backlight/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include "attention/fitted_config.hpp"
#include "backlight/cache/disk_cache.hpp"
#include "backlight/error.hpp"
#include "device/cuda_device.hpp"
#include "logging.hpp"
#include "runtime_implementation.hpp"
#include "tuning/tune.hpp"

namespace backlight {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

/// A relative path is meant from here, wherever the process goes later. Empty where that is not to
/// be known. Ends in a name: what lies beside a directory is called by its name and more, and would
/// lie within it if a slash were between them.
std::filesystem::path absolute_path(const std::filesystem::path& path) {
    std::error_code failure;
    std::filesystem::path whole = std::filesystem::absolute(path, failure);
    if (failure) {
        return {};
    }
    while (whole.has_relative_path() && (!whole.has_filename() || whole.filename() == ".")) {
        whole = whole.parent_path();
    }
    return whole;
}

CompilePolicy policy_of(const std::string& text) {
    for (const CompilePolicy policy :
         {CompilePolicy::allow, CompilePolicy::warn, CompilePolicy::forbid}) {
        if (text == to_string(policy)) {
            return policy;
        }
    }
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("BACKLIGHT_COMPILE_POLICY is '{}': it must be allow, warn or forbid", text));
}

void add_layers(std::string_view paths, std::vector<CacheLayer>& layers) {
    while (!paths.empty()) {
        const std::size_t end = std::min(paths.find(':'), paths.size());
        if (end > 0) {
            layers.push_back({.path = paths.substr(0, end)});
        }
        paths.remove_prefix(std::min(end + 1, paths.size()));
    }
}

/// A kernel is in no layer of the cache, and there is nothing that may compile it.
bool lacks_compiler(const Error& error) noexcept {
    return error.code() == ErrorCode::compile_forbidden ||
           error.code() == ErrorCode::nvrtc_not_found || error.code() == ErrorCode::nvrtc_too_old;
}

}  // namespace

const char* to_string(CompilePolicy policy) noexcept {
    switch (policy) {
        case CompilePolicy::allow:
            return "allow";
        case CompilePolicy::warn:
            return "warn";
        case CompilePolicy::forbid:
            return "forbid";
    }
    return "unknown";
}

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
        options.cache_directory = absolute_path(options.cache_directory);
    }
    add_layers(environment("BACKLIGHT_CACHE_LAYERS"), options.cache_layers);
    for (CacheLayer& layer : options.cache_layers) {
        // What is nowhere is as good as not there, and no reason to refuse the rest.
        if (std::filesystem::path whole = absolute_path(layer.path); !whole.empty()) {
            layer.path = std::move(whole);
        }
    }
    if (const std::string policy = environment("BACKLIGHT_COMPILE_POLICY"); !policy.empty()) {
        options.compile_policy = std::max(options.compile_policy, policy_of(policy));
    }
    if (options.tuning_database.empty()) {
        options.tuning_database = environment("BACKLIGHT_TUNING_PATH");
    }
    if (!options.tuning_database.empty()) {
        options.tuning_database = absolute_path(options.tuning_database);
    }
    // Beside the cache, not in it: what can be compiled again is thrown away sooner.
    if (options.tuning_database.empty() && !options.cache_directory.empty()) {
        options.tuning_database = options.cache_directory;
        options.tuning_database += ".tuning.json";
    }
    return options;
}

TileConfig default_config(const AttentionProblem& problem, const device::Target& target) {
    return tuning::heuristic(problem, target);
}

std::size_t Runtime::Implementation::PlanKeyHash::operator()(const PlanKey& key) const noexcept {
    std::size_t hash = AttentionProblemHash{}(key.problem);
    for (const int value : {static_cast<int>(key.config.family), key.config.heads_per_group,
                            key.config.block_q, key.config.block_kv, key.config.warps,
                            key.config.stages, static_cast<int>(key.config.sequence_lengths),
                            static_cast<int>(key.config.programmatic_dependent_launch),
                            static_cast<int>(key.config.converts_d_q)}) {
        hash = hash * 31 + static_cast<std::size_t>(value);
    }
    return hash;
}

Runtime::Implementation::Implementation(std::shared_ptr<device::Device> device,
                                        compiler::KernelStoreOptions options,
                                        std::filesystem::path tuning_database)
    : loader_(std::move(device), std::move(options)),
      plan_counters_(std::make_shared<attention::ChainPlan::Counters>()),
      tunings_(std::move(tuning_database)) {
    // Made before the Runtime is, so that work at the exit of the process, after spdlog's own end,
    // finds it.
    logger();
}

Runtime::Implementation::~Implementation() {
    store().tasks().finish();
}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::backward(
    const AttentionProblem& problem) {
    std::uint64_t forgotten = 0;
    {
        const std::shared_lock lock(plans_mutex_);
        if (const auto found = chosen_plans_.find(problem); found != chosen_plans_.end()) {
            return found->second;
        }
        forgotten = choices_forgotten_;
    }
    auto chosen = chosen_plan(problem);
    const std::lock_guard lock(plans_mutex_);
    return forgotten == choices_forgotten_
               ? chosen_plans_.try_emplace(problem, std::move(chosen)).first->second
               : chosen;
}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::chosen_plan(
    const AttentionProblem& problem) {
    const TileConfig best = tuning::choose_config(problem, loader_, tunings_);
    try {
        return backward(problem, best);
    } catch (const Error& refusal) {
        if (!lacks_compiler(refusal)) {
            throw;
        }
        return next_best_plan(problem, best, refusal);
    }
}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::next_best_plan(
    const AttentionProblem& problem, const TileConfig& best, const Error& refusal) {
    // An application that ships its kernels was built before the card was tuned for the problem, or
    // without those that are best on this card.
    std::string tried;
    for (const TileConfig& next : tuning::other_configs(problem, loader_, tunings_)) {
        if (next == best) {
            continue;
        }
        try {
            auto plan = backward(problem, next);
            // Once as a warning, as a program may have a problem for every length.
            const auto level =
                next_best_told_.exchange(true) ? spdlog::level::info : spdlog::level::warn;
            logger().log(level, "{}: the best configuration is not used, but {}: {}",
                         to_string(problem), to_string(next), refusal.what());
            return plan;
        } catch (const Error& error) {
            if (!lacks_compiler(error)) {
                throw;
            }
            tried += fmt::format("{}{}", tried.empty() ? "" : ", nor of ", to_string(next));
        }
    }
    if (tried.empty()) {
        throw refusal;
    }
    throw Error(refusal.code(),
                fmt::format("{} The kernels of what would serve as well cannot be had either: "
                            "not of {}.",
                            refusal.what(), tried));
}

TuneReport Runtime::Implementation::tune(const AttentionProblem& problem,
                                         const TuneOptions& options) {
    TuneReport report = tuning::tune(problem, options, loader_, tunings_);
    forget_choices();
    return report;
}

void Runtime::Implementation::forget_choices() {
    const std::lock_guard lock(plans_mutex_);
    chosen_plans_.clear();
    ++choices_forgotten_;
}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::backward(
    const AttentionProblem& problem, const TileConfig& config) {
    return plan(problem, attention::fitted_config(config, problem, device().properties().target));
}

std::shared_ptr<const attention::ChainPlan> Runtime::Implementation::plan(
    const AttentionProblem& problem, const TileConfig& config) {
    const PlanKey key{problem, config};
    {
        const std::shared_lock lock(plans_mutex_);
        if (const auto found = plans_.find(key); found != plans_.end()) {
            return found->second;
        }
    }
    // Made without the lock: compiling takes long, and the kernel store compiles each kernel once.
    auto made = std::make_shared<attention::ChainPlan>(problem, config, loader_, plan_counters_);
    repeated_compiles_.note(*made);
    const std::unique_lock lock(plans_mutex_);
    return plans_.try_emplace(key, std::move(made)).first->second;
}

std::shared_ptr<const BackwardPlan> Runtime::Implementation::prepare(
    const AttentionProblem& problem, const std::optional<TileConfig>& config) {
    auto prepared = config ? backward(problem, *config) : backward(problem);
    // A plan that was there already may have been made in another context.
    plan(problem, prepared->config())->prepare();
    return prepared;
}

std::shared_future<std::shared_ptr<const BackwardPlan>> Runtime::Implementation::prepare_async(
    const AttentionProblem& problem, const std::optional<TileConfig>& config) {
    using Plan = std::shared_ptr<const BackwardPlan>;
    auto task = std::make_shared<std::packaged_task<Plan()>>(
        [this, problem, config, context = device().current_context()] {
            const device::ContextGuard guard(device(), context);
            return prepare(problem, config);
        });
    std::shared_future<Plan> future = task->get_future().share();
    store().tasks().submit([task] { (*task)(); });
    return future;
}

RuntimeCounters Runtime::Implementation::counters() const {
    RuntimeCounters counters = loader_.store().counters();
    counters.tensor_maps_encoded = plan_counters_->tensor_maps_encoded;
    return counters;
}

compiler::KernelStoreOptions store_options(const RuntimeOptions& resolved) {
    return {.nvrtc_path = resolved.nvrtc_path,
            .cache_layers = resolved.cache_layers,
            .cache_directory = resolved.cache_directory,
            .cache_byte_limit = resolved.cache_byte_limit,
            .compile_policy = resolved.compile_policy,
            .compile_threads = resolved.compile_threads};
}

std::uint64_t RuntimeCounters::layer_hits() const noexcept {
    std::uint64_t sum = 0;
    for (const LayerHits& layer : hits_by_layer) {
        sum += layer.hits;
    }
    return sum;
}

Runtime::Runtime(const RuntimeOptions& options) {
    RuntimeOptions resolved = with_environment(options);
    auto device = std::make_shared<device::CudaDevice>(device::open_driver(resolved.driver_path),
                                                       resolved.device);
    implementation_ = std::make_shared<Implementation>(std::move(device), store_options(resolved),
                                                       std::move(resolved.tuning_database));
}

Runtime::Runtime(std::shared_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}

Runtime::~Runtime() = default;
Runtime::Runtime(Runtime&&) noexcept = default;
Runtime& Runtime::operator=(Runtime&&) noexcept = default;

std::shared_ptr<const BackwardPlan> Runtime::backward(const AttentionProblem& problem) {
    return implementation_->backward(problem);
}

std::shared_ptr<const BackwardPlan> Runtime::backward(const AttentionProblem& problem,
                                                      const TileConfig& config) {
    return implementation_->backward(problem, config);
}

TuneReport Runtime::tune(const AttentionProblem& problem, const TuneOptions& options) {
    return implementation_->tune(problem, options);
}

std::shared_ptr<const BackwardPlan> Runtime::prepare(const AttentionProblem& problem) {
    return implementation_->prepare(problem, std::nullopt);
}

std::shared_ptr<const BackwardPlan> Runtime::prepare(const AttentionProblem& problem,
                                                     const TileConfig& config) {
    return implementation_->prepare(problem, config);
}

std::shared_future<std::shared_ptr<const BackwardPlan>> Runtime::prepare_async(
    const AttentionProblem& problem) {
    return implementation_->prepare_async(problem, std::nullopt);
}

std::shared_future<std::shared_ptr<const BackwardPlan>> Runtime::prepare_async(
    const AttentionProblem& problem, const TileConfig& config) {
    return implementation_->prepare_async(problem, config);
}

const std::string& Runtime::target() const noexcept {
    return implementation_->device().properties().target.name;
}

const std::string& Runtime::device_name() const noexcept {
    return implementation_->device().properties().name;
}

RuntimeCounters Runtime::counters() const {
    return implementation_->counters();
}

}  // namespace backlight
