#include "attention/plan.hpp"

#include <fmt/format.h>

#include <utility>

#include "attention/validation.hpp"
#include "backlight/error.hpp"

namespace backlight::attention {

ChainPlan::ChainPlan(const AttentionProblem& problem, const TileConfig& config,
                     KernelLoader& loader, std::shared_ptr<Counters> counters)
    : problem_(problem),
      config_(config),
      layout_(problem),
      device_(loader.shared_device()),
      counters_(std::move(counters)) {
    const auto chain = backward_chain(problem_, config_, device_->properties().target);
    const std::array<LoadedKernel*, 3> places = {&delta_, &main_, &convert_};
    const std::vector<KernelLoader::Loaded> loaded = loader.load(chain);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        *places[i] = {loaded[i].kernel, chain[i].shape};
        resources_.push_back(kernel_resources(chain[i], loaded[i].compiled));
    }
}

void ChainPlan::prepare() const {
    for (const LoadedKernel* loaded : {&delta_, &main_, &convert_}) {
        loaded->kernel->prepare();
    }
}

void ChainPlan::tensor_map(const char* operand, const ConstTensorView& view, std::int64_t seqlen,
                           int rows, std::uint64_t operand_kind, kernel::TensorMap& map) const {
    const tensor_map::CacheKey key{
        .address = reinterpret_cast<std::uint64_t>(view.data),
        .stride_batch = view.stride_batch,
        .stride_head = view.stride_head,
        .stride_seqlen = view.stride_seqlen,
        .operand = operand_kind,
    };
    if (maps_.find(key, map)) {
        return;
    }
    const tensor_map::Request request = tile_map_request(problem_, view, seqlen, rows);
    tensor_map::check(request, operand);
    device_->encode(request, map);
    counters_->tensor_maps_encoded.fetch_add(1, std::memory_order_relaxed);
    maps_.insert(key, map);
}

void ChainPlan::run(const BackwardTensors& tensors, void* workspace, std::size_t workspace_bytes,
                    Stream stream) const {
    validate(tensors, problem_);
    validate_workspace(tensors, workspace, workspace_bytes, layout_.bytes, problem_);

    // Everything that can be refused is refused before the first launch.
    const kernel::DeltaArguments delta = delta_arguments(problem_, tensors, layout_, workspace);
    kernel::MmaArguments main = mma_arguments(problem_, tensors, layout_, workspace);
    constexpr std::uint64_t query_rows = 0;
    constexpr std::uint64_t key_rows = 1;
    tensor_map("q", tensors.q, problem_.seqlen_q, config_.block_q, query_rows, main.q);
    tensor_map("d_o", tensors.d_o, problem_.seqlen_q, config_.block_q, query_rows, main.d_o);
    tensor_map("k", tensors.k, problem_.seqlen_kv, config_.block_kv, key_rows, main.k);
    tensor_map("v", tensors.v, problem_.seqlen_kv, config_.block_kv, key_rows, main.v);
    const kernel::ConvertArguments convert =
        convert_arguments(problem_, tensors, layout_, workspace);

    delta_.kernel->launch(delta_.shape, &delta, stream);
    main_.kernel->launch(main_.shape, &main, stream);
    convert_.kernel->launch(convert_.shape, &convert, stream);
}

}  // namespace backlight::attention
