#include <cstdint>

#include "attention/kernels.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

namespace {
constexpr int convert_threads = 256;
}

KernelPlan convert_kernel(const AttentionProblem& problem, const TileConfig& config,
                          const device::Target& target) {
    const bool tiles = config.family == KernelFamily::wgmma;
    // A tile's rows, each with 16 bytes of padding.
    const std::int64_t shared_bytes = tiles ? rows_per_block * (problem.head_dim + 8) * 2 : 0;
    const std::string name = tiles ? "attention_backward_convert_tiles"  // of 64 rows as well
                                   : "attention_backward_convert";
    compiler::SpecialisationWriter specialisation(name);
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", problem.head_dim)
        .integer("threads", convert_threads);
    if (tiles) {
        specialisation
            .boolean("d_q_transposed", config.d_q_transposed,
                     "tiles hold dQᵀ, as wgmma computed it")
            .integer("shared_bytes", shared_bytes, "as the host counts");
    } else {
        specialisation.integer("rows_per_block", rows_per_block);
    }
    const std::int64_t row_blocks = (problem.seqlen_q + rows_per_block - 1) / rows_per_block;
    return {
        .request = {.source = name + ".cu",
                    .entry = name,
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(problem.batch * problem.heads * row_blocks),
                  .threads = convert_threads,
                  .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes),
                  .may_start_early = config.programmatic_dependent_launch},
    };
}

kernel::ConvertArguments convert_arguments(const AttentionProblem& problem,
                                           const BackwardTensors& tensors,
                                           const WorkspaceLayout& layout,
                                           void* workspace) noexcept {
    return {
        .d_q_accumulator = layout.d_q_accumulator(workspace),
        .d_q = tensors.d_q.data,
        .d_q_strides = strides_of(tensors.d_q),
        .softmax_scale = problem.effective_softmax_scale(),
        .heads = static_cast<int>(problem.heads),
        .seqlen_q = static_cast<int>(problem.seqlen_q),
    };
}

}  // namespace backlight::attention
