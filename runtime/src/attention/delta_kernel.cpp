#include <cstdint>

#include "attention/kernels.hpp"
#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

namespace {
constexpr int delta_threads = 256;
}

KernelPlan delta_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target) {
    compiler::SpecialisationWriter specialisation("attention_backward_delta");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", tile_head_dim(problem))
        .integer("threads", delta_threads)
        .integer("rows_per_block", rows_per_block)
        .boolean("statistics_in_fragment_order", config.family != KernelFamily::mma,
                 "as kernels with keys as rows read them")
        .boolean("counts_progress", takes_tickets(problem, config),
                 "blocks of the main kernel wait for each other");
    write_partial_query_tiles(specialisation, problem, config);
    write_head_dims(specialisation, problem);
    write_deterministic(specialisation, problem);
    const std::int64_t row_blocks = tiles_of(padded_seqlen_q(problem, config), rows_per_block);
    return {
        .request = {.source = "attention_backward_delta.cu",
                    .entry = "attention_backward_delta",
                    .specialisation = specialisation.text(),
                    .target = target},
        // The first of the chain: it waits for whatever came before it in the stream.
        .shape = {.blocks = static_cast<std::uint32_t>(problem.batch * problem.heads * row_blocks),
                  .threads = delta_threads},
    };
}

kernel::DeltaArguments delta_arguments(const AttentionProblem& problem, const TileConfig& config,
                                       const BackwardTensors& tensors,
                                       const WorkspaceLayout& layout, void* workspace) noexcept {
    return {
        .o = tensors.o.data,
        .d_o = tensors.d_o.data,
        .lse = tensors.lse.data,
        .o_strides = strides_of(tensors.o),
        .d_o_strides = strides_of(tensors.d_o),
        .lse_stride_batch = tensors.lse.stride_batch,
        .lse_stride_head = tensors.lse.stride_head,
        .row_statistics = layout.row_statistics(workspace),
        .negated_lse_log2 = layout.negated_lse_log2(workspace),
        .negated_delta = layout.negated_delta(workspace),
        .counters = layout.counters(workspace),
        .d_q_accumulator = layout.d_q_accumulator(workspace),
        .accumulator_heads = static_cast<int>(layout.accumulator_heads),
        .heads = static_cast<int>(problem.heads),
        .seqlen_q = static_cast<int>(problem.seqlen_q),
        .padded_seqlen_q = static_cast<int>(padded_seqlen_q(problem, config)),
        .turns = layout.turn_counters(workspace),
        .query_tiles = static_cast<int>(query_tiles(problem, config)),
    };
}

}  // namespace backlight::attention
