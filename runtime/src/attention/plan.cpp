#include "attention/plan.hpp"

#include <fmt/format.h>

#include <utility>

#include "attention/validation.hpp"
#include "attention/zero_gradients.hpp"
#include "backlight/error.hpp"

namespace backlight::attention {

ChainPlan::ChainPlan(const AttentionProblem& problem, const TileConfig& config,
                     KernelLoader& loader, std::shared_ptr<Counters> counters)
    : ChainPlan(problem, config,
                backward_chain(problem, config, loader.device().properties().target), loader,
                std::move(counters)) {}

ChainPlan::ChainPlan(const AttentionProblem& problem, const TileConfig& config,
                     const std::vector<KernelPlan>& chain, KernelLoader& loader,
                     std::shared_ptr<Counters> counters)
    : problem_(problem),
      config_(config),
      layout_(problem, config),
      device_(loader.shared_device()),
      counters_(std::move(counters)) {
    const std::vector<KernelLoader::Loaded> loaded = loader.load(chain);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        kernels_.push_back({loaded[i].kernel, chain[i].shape});
        resources_.push_back(kernel_resources(chain[i], loaded[i].compiled));
    }
}

void ChainPlan::prepare() const {
    for (const LoadedKernel& loaded : kernels_) {
        loaded.kernel->prepare();
    }
}

void ChainPlan::tensor_map(const char* operand, const ConstTensorView& view, const Extents& extents,
                           int rows, kernel::TensorMap& map) const {
    const tensor_map::CacheKey key{
        .address = reinterpret_cast<std::uint64_t>(view.data),
        .stride_batch = view.stride_batch,
        .stride_head = view.stride_head,
        .stride_seqlen = view.stride_seqlen,
        .seqlen = extents.seqlen,
        .heads = extents.heads,
        .head_dim = extents.head_dim,
        .rows = rows,
    };
    if (maps_.find(key, map)) {
        return;
    }
    const tensor_map::Request request = tile_map_request(problem_.dtype, view, extents, rows);
    tensor_map::check(request, operand);
    device_->encode(request, map);
    counters_->tensor_maps_encoded.fetch_add(1, std::memory_order_relaxed);
    maps_.insert(key, map);
}

void ChainPlan::run(const BackwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
                    Stream stream) const {
    validate(tensors, problem_);
    validate_workspace(tensors, workspace, workspace_bytes, layout_.bytes, problem_);

    if (problem_.is_empty()) {
        if (!problem_.accumulate_gradients) {
            zero_gradients(*device_, tensors, problem_, stream);
        }
        return;
    }

    // Everything that can be refused is refused before the first launch.
    const EncodeMap encode = [this](const char* operand, const ConstTensorView& view,
                                    const Extents& extents, int rows, kernel::TensorMap& map) {
        tensor_map(operand, view, extents, rows, map);
    };
    const DeltaKernelArguments delta =
        delta_arguments(problem_, config_, tensors, layout_, workspace, encode);
    const MainArguments main =
        main_arguments(problem_, config_, tensors, layout_, workspace, encode);
    const ConvertKernelArguments convert =
        convert_arguments(problem_, config_, tensors, layout_, workspace);

    const std::array<const void*, 3> arguments = {delta.data(), main.data(), convert.data()};
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
        kernels_[i].kernel->launch(kernels_[i].shape, arguments[i], stream);
    }
}

}  // namespace backlight::attention
