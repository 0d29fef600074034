#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "attention/kernel_loader.hpp"
#include "attention/plan.hpp"
#include "backlight/runtime.hpp"
#include "compiler/kernel_store.hpp"
#include "device/device.hpp"

namespace backlight {

/// What a Runtime owns. Tools and tests of this repository reach through it to the device and the
/// compiler; it is no part of the installed headers.
class Runtime::Implementation {
  public:
    Implementation(std::shared_ptr<device::Device> device, compiler::KernelStoreOptions options);

    std::shared_ptr<const BackwardPlan> backward(const AttentionProblem& problem,
                                                 const TileConfig& config);
    RuntimeCounters counters() const noexcept;

    device::Device& device() noexcept { return loader_.device(); }
    const device::Device& device() const noexcept { return loader_.device(); }
    compiler::KernelStore& store() noexcept { return loader_.store(); }

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
    std::mutex plans_mutex_;
    std::unordered_map<PlanKey, std::shared_ptr<const BackwardPlan>, PlanKeyHash> plans_;
};

/// The options of a Runtime with the environment's values where the caller gave none.
RuntimeOptions with_environment(RuntimeOptions options);

/// The configuration that a problem gets where the caller names none.
TileConfig default_config(const AttentionProblem& problem, const device::Target& target);

}  // namespace backlight
