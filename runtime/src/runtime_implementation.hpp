#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>

#include "attention/kernel_loader.hpp"
#include "attention/plan.hpp"
#include "attention/repeated_compiles.hpp"
#include "backlight/error.hpp"
#include "backlight/runtime.hpp"
#include "compiler/kernel_store.hpp"
#include "device/device.hpp"
#include "tuning/tunings.hpp"

namespace backlight {

/// What a Runtime owns. Tools and tests of this repository reach through it to the device and the
/// compiler; it is no part of the installed headers.
class Runtime::Implementation {
  public:
    Implementation(std::shared_ptr<device::Device> device, compiler::KernelStoreOptions options,
                   std::filesystem::path tuning_database = {});
    /// Waits for what was asked of `prepare_async`.
    ~Implementation();

    std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem);
    std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem,
                                                 const TileConfig& config);
    std::shared_ptr<const BackwardPlan> prepare(const AttentionProblem& problem,
                                                const std::optional<TileConfig>& config);
    std::shared_future<std::shared_ptr<const BackwardPlan>> prepare_async(
        const AttentionProblem& problem, const std::optional<TileConfig>& config);
    TuneReport tune(const AttentionProblem& problem, const TuneOptions& options);
    RuntimeCounters counters() const;
    /// From now on `backward(problem)` chooses by what `tunings` has now.
    void forget_choices();

    device::Device& device() noexcept { return loader_.device(); }
    const device::Device& device() const noexcept { return loader_.device(); }
    compiler::KernelStore& store() noexcept { return loader_.store(); }
    tuning::Tunings& tunings() noexcept { return tunings_; }

  private:
    struct PlanKey {
        AttentionProblem problem;
        TileConfig config;
        bool operator==(const PlanKey&) const = default;
    };
    struct PlanKeyHash {
        std::size_t operator()(const PlanKey& key) const noexcept;
    };

    attention::KernelLoader loader_;
    std::shared_ptr<attention::ChainPlan::Counters> plan_counters_;
    tuning::Tunings tunings_;
    attention::RepeatedCompiles repeated_compiles_;
    // Shared by those who look, which is the way of every step of a training loop.
    std::shared_mutex plans_mutex_;
    std::unordered_map<PlanKey, std::shared_ptr<const attention::ChainPlan>, PlanKeyHash> plans_;
    /// Counts how often what was chosen was forgotten: who began to choose before has chosen by
    /// what was known then, which must not be kept.
    std::uint64_t choices_forgotten_ = 0;
    std::atomic<bool> next_best_told_ = false;
    /// The plans of problems whose configuration was chosen here; forgotten when that may change.
    std::unordered_map<AttentionProblem, std::shared_ptr<const BackwardPlan>, AttentionProblemHash>
        chosen_plans_;

    /// The plan with the configuration that is best for the problem; where its kernels are in no
    /// layer of the cache and cannot be compiled, with the next best whose kernels are.
    std::shared_ptr<const BackwardPlan> chosen_plan(const AttentionProblem& problem);
    /// The plan with the next best, and a warning. Throws where there is none.
    std::shared_ptr<const BackwardPlan> next_best_plan(const AttentionProblem& problem,
                                                       const TileConfig& best,
                                                       const Error& refusal);
    /// The plan, made where there is none yet.
    std::shared_ptr<const attention::ChainPlan> plan(const AttentionProblem& problem,
                                                     const TileConfig& config);
};

/// The options of a Runtime with the environment's values where the caller gave none.
RuntimeOptions with_environment(RuntimeOptions options);

/// What a Runtime of those options hands to its kernel store.
compiler::KernelStoreOptions store_options(const RuntimeOptions& resolved);

/// The configuration that a problem gets on cards of the target that nothing was tuned on.
TileConfig default_config(const AttentionProblem& problem, const device::Target& target);

}  // namespace backlight
