#include "ready_chain.hpp"

#include <array>

#include "attention/workspace.hpp"
#include "compiler/kernel_store.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

ReadyChain::ReadyChain(Session& session, const ProblemData& data, const TileConfig& config,
                       void* workspace, int mma_repeats)
    : stream_(session.stream()) {
    const AttentionProblem& problem = data.problem();
    const std::vector<attention::KernelPlan> chain = attention::backward_chain(
        problem, config, session.device().properties().target, mma_repeats);
    std::vector<compiler::KernelRequest> requests;
    requests.reserve(chain.size());
    for (const attention::KernelPlan& plan : chain) {
        requests.push_back(plan.request);
    }
    const std::vector<compiler::KernelLookup> compiled =
        session.runtime().implementation().store().get_all(requests);
    for (std::size_t i = 0; i < chain.size(); ++i) {
        kernels_.push_back(session.device().load(compiled[i].kernel->cubin,
                                                 chain[i].request.entry.c_str(),
                                                 chain[i].shape.dynamic_shared_bytes));
        kernels_.back()->prepare();
        shapes_.push_back(chain[i].shape);
        resources_.push_back(attention::kernel_resources(chain[i], compiled[i]));
    }

    const attention::WorkspaceLayout layout(problem, config);
    const BackwardTensors tensors = data.tensors();
    const attention::EncodeMap encode = [&](const char* /*operand*/, const ConstTensorView& view,
                                            const attention::Extents& extents, int rows,
                                            kernel::TensorMap& map) {
        session.device().encode(attention::tile_map_request(problem.dtype, view, extents, rows),
                                map);
    };
    delta_ = attention::delta_arguments(problem, config, tensors, layout, workspace, encode);
    main_ = attention::main_arguments(problem, config, tensors, layout, workspace, encode);
    convert_ = attention::convert_arguments(problem, config, tensors, layout, workspace);
}

std::size_t ReadyChain::workspace_bytes(const AttentionProblem& problem, const TileConfig& config) {
    return attention::WorkspaceLayout(problem, config).bytes;
}

void ReadyChain::launch(std::size_t kernel, device::LaunchShape shape) const {
    const std::array<const void*, 3> arguments = {delta_.data(), main_.data(), convert_.data()};
    kernels_[kernel]->launch(shape, arguments[kernel], stream_);
}

void ReadyChain::launch() const {
    for (std::size_t i = 0; i < kernels_.size(); ++i) {
        launch(i, shapes_[i]);
    }
}

void ReadyChain::launch(ChainPart part) const {
    std::size_t begin = main_index;
    std::size_t end = main_index + 1;
    if (part == ChainPart::before_main) {
        begin = 0;
        end = main_index;
    } else if (part == ChainPart::after_main) {
        begin = main_index + 1;
        end = kernels_.size();
    }
    for (std::size_t i = begin; i < end; ++i) {
        device::LaunchShape shape = shapes_[i];
        shape.may_start_early = false;
        launch(i, shape);
    }
}

}  // namespace backlight::tool
