#include <algorithm>
#include <cstdint>

#include "attention/kernels.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

KernelPlan wgmma_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target) {
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, problem);

    compiler::SpecialisationWriter specialisation("attention_backward_wgmma");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", problem.head_dim)
        .boolean("causal", problem.causal, "query i attends to keys 0 ... i")
        .integer("block_q", config.block_q, "query rows a tile")
        .integer("block_kv", config.block_kv, "key rows a thread block")
        .integer("stages", config.stages, "buffers for the Q and dO tiles")
        .integer("heads_per_group", config.heads_per_group, "heads that run at the same time")
        .integer("seqlen_q", constant ? problem.seqlen_q : 0, "0: a kernel argument")
        .integer("seqlen_kv", constant ? problem.seqlen_kv : 0, "0: a kernel argument")
        .integer("shared_bytes", static_cast<std::int64_t>(shared_bytes), "as the host counts");

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
                                       const WorkspaceLayout& layout, void* workspace) noexcept {
    kernel::WgmmaArguments arguments{};
    arguments.negated_lse_log2 = layout.negated_lse_log2(workspace);
    arguments.negated_delta = layout.negated_delta(workspace);
    arguments.counters = layout.counters(workspace);
    arguments.d_q_accumulator = layout.d_q_accumulator(workspace);
    set_problem(arguments, problem);
    set_rounds(arguments, problem, Rounds(problem, config));
    return arguments;
}

}  // namespace backlight::attention
