#include <algorithm>
#include <cstdint>

#include "attention/kernels.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

KernelPlan wgmma_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target) {
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, problem);

    compiler::SpecialisationWriter specialisation("attention_backward_wgmma");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", tile_head_dim(problem))
        .boolean("causal", is_square_causal(problem, config),
                 "query i attends to keys 0 ... i, of equal lengths in whole tiles")
        .integer("block_q", config.block_q, "query rows a tile")
        .integer("block_kv", config.block_kv, "key rows a thread block")
        .integer("stages", config.stages, "buffers for the Q and dO tiles")
        .integer("heads_per_group", config.heads_per_group, "heads that run at the same time")
        .integer("seqlen_q", constant ? problem.seqlen_q : 0, "0: a kernel argument")
        .integer("seqlen_kv", constant ? problem.seqlen_kv : 0, "0: a kernel argument")
        .integer("shared_bytes", static_cast<std::int64_t>(shared_bytes), "as the host counts");
    write_key_tile_options(specialisation, problem, config);

    // They take tickets until there are none left.
    const Rounds rounds(problem, config);
    const std::int64_t blocks = std::min(rounds.resident_blocks, rounds.tickets());
    return {
        .request = {.source = "attention_backward_wgmma.cu",
                    .entry = "attention_backward_wgmma",
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(blocks),
                  .threads = static_cast<std::uint32_t>(config.warps) * 32,
                  .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes),
                  .may_start_early = config.programmatic_dependent_launch},
    };
}

kernel::WgmmaArguments wgmma_arguments(const AttentionProblem& problem, const TileConfig& config,
                                       const BackwardTensors& tensors,
                                       const WorkspaceLayout& layout, void* workspace) noexcept {
    kernel::WgmmaArguments arguments{};
    arguments.negated_lse_log2 = layout.negated_lse_log2(workspace);
    arguments.negated_delta = layout.negated_delta(workspace);
    arguments.counters = layout.counters(workspace);
    arguments.d_q_accumulator = layout.d_q_accumulator(workspace);
    set_problem(arguments, problem);
    set_key_tiles(arguments, problem);
    const Rounds rounds(problem, config);
    set_rounds(arguments, problem, rounds);
    arguments.heads_per_group = static_cast<int>(rounds.group_heads);
    arguments.turns = layout.turn_counters(workspace);
    set_packed_work(arguments, problem, layout, workspace);
    arguments.d_q_data = tensors.d_q.data;
    arguments.d_k_data = tensors.d_k.data;
    arguments.d_v_data = tensors.d_v.data;
    arguments.d_q_strides = strides_of(tensors.d_q);
    arguments.d_k_strides = strides_of(tensors.d_k);
    arguments.d_v_strides = strides_of(tensors.d_v);
    return arguments;
}

}  // namespace backlight::attention
