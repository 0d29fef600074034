#include <cstdint>

#include "attention/kernels.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

namespace {

/// Warps take 32 columns each, and rows are shared by as many as they have.
int convert_threads(const AttentionProblem& problem) {
    return tile_head_dim(problem) == 192 ? 192 : 256;
}

}  // namespace

KernelPlan convert_kernel(const AttentionProblem& problem, const TileConfig& config,
                          const device::Target& target) {
    compiler::SpecialisationWriter specialisation("attention_backward_convert");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", tile_head_dim(problem))
        .integer("threads", convert_threads(problem))
        .integer("rows_per_block", rows_per_block)
        .boolean("accumulator_in_fragment_order", config.family == KernelFamily::mma_resident,
                 "as the kernel's threads hold dQ");
    write_partial_query_tiles(specialisation, problem, config);
    write_packed(specialisation, problem, config);
    write_head_dims(specialisation, problem);
    write_gradient_type(specialisation, problem);
    const std::int64_t row_blocks =
        problem.packed ? packed_row_blocks(problem, rows_per_block)
                       : problem.batch * tiles_of(problem.seqlen_q, rows_per_block);
    return {
        .request = {.source = "attention_backward_convert.cu",
                    .entry = "attention_backward_convert",
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(problem.heads * row_blocks),
                  .threads = static_cast<std::uint32_t>(convert_threads(problem)),
                  .may_start_early = config.programmatic_dependent_launch},
    };
}

ConvertKernelArguments convert_arguments(const AttentionProblem& problem, const TileConfig& config,
                                         const BackwardTensors& tensors,
                                         const WorkspaceLayout& layout, void* workspace) noexcept {
    const kernel::ConvertArguments arguments{
        .d_q_accumulator = layout.d_q_accumulator(workspace),
        .d_q = tensors.d_q.data,
        .d_q_strides = strides_of(tensors.d_q),
        .softmax_scale = problem.effective_softmax_scale(),
        .heads = static_cast<int>(problem.heads),
        .seqlen_q = static_cast<int>(problem.seqlen_q),
        .padded_seqlen_q = static_cast<int>(padded_seqlen_q(problem, config)),
    };
    if (!problem.packed) {
        return {arguments};
    }
    return {kernel::PackedConvertArguments{.convert = arguments,
                                           .q = packed_queries(problem, tensors),
                                           .sequences = static_cast<int>(problem.batch)}};
}

}  // namespace backlight::attention
