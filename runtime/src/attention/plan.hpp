#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/kernel_loader.hpp"
#include "attention/kernels.hpp"
#include "attention/workspace.hpp"
#include "backlight/runtime.hpp"
#include "device/device.hpp"
#include "tensor_map/tensor_map_cache.hpp"

namespace backlight::attention {

/// The backward as the chain delta → main, and but for wgmma → convert.
class ChainPlan final : public BackwardPlan {
  public:
    /// Counts that outlive neither the Runtime nor the plan alone.
    struct Counters {
        std::atomic<std::uint64_t> tensor_maps_encoded = 0;
    };

    /// Compiles and loads what the chain needs.
    ChainPlan(const AttentionProblem& problem, const TileConfig& config, KernelLoader& loader,
              std::shared_ptr<Counters> counters);

    const AttentionProblem& problem() const noexcept override { return problem_; }
    const TileConfig& config() const noexcept override { return config_; }
    std::size_t workspace_bytes() const noexcept override { return layout_.bytes; }
    const std::vector<KernelResources>& resources() const noexcept override { return resources_; }
    /// Makes the kernels' code ready in the calling thread's current context.
    void prepare() const;
    void run(const BackwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
             Stream stream) const override;

  private:
    struct LoadedKernel {
        std::shared_ptr<const device::Kernel> kernel;
        device::LaunchShape shape;
    };

    /// Of a problem and configuration that are valid: only then is there a chain, and a layout.
    ChainPlan(const AttentionProblem& problem, const TileConfig& config,
              const std::vector<KernelPlan>& chain, KernelLoader& loader,
              std::shared_ptr<Counters> counters);

    /// The map of a tensor whose rows are copied `rows` at a time: from the cache, or encoded.
    void tensor_map(const char* operand, const ConstTensorView& view, const Extents& extents,
                    int rows, kernel::TensorMap& map) const;

    AttentionProblem problem_;
    TileConfig config_;
    WorkspaceLayout layout_;
    std::shared_ptr<device::Device> device_;
    std::shared_ptr<Counters> counters_;
    /// In launch order.
    std::vector<LoadedKernel> kernels_;
    std::vector<KernelResources> resources_;
    mutable tensor_map::TensorMapCache maps_;
};

}  // namespace backlight::attention
