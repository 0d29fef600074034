#include <algorithm>
#include <cstdint>

#include "attention/kernels.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

KernelPlan mma_resident_kernel(const AttentionProblem& problem, const TileConfig& config,
                               const device::Target& target, int mma_repeats) {
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, problem.head_dim);

    compiler::SpecialisationWriter specialisation("attention_backward_mma_resident");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", problem.head_dim)
        .boolean("causal", problem.causal, "query i attends to keys 0 ... i")
        .integer("block_q", config.block_q, "query rows a tile")
        .integer("block_kv", config.block_kv, "key rows a thread block")
        .integer("seqlen_q", constant ? problem.seqlen_q : 0, "0: a kernel argument")
        .integer("seqlen_kv", constant ? problem.seqlen_kv : 0, "0: a kernel argument")
        .integer("shared_bytes", static_cast<std::int64_t>(shared_bytes), "as the host counts")
        .integer("shared_bytes_per_multiprocessor",
                 static_cast<std::int64_t>(target.shared_bytes_per_multiprocessor));
    write_mma_repeats(specialisation, mma_repeats);

    const std::int64_t kv_tiles = problem.seqlen_kv / config.block_kv;
    return {
        .request = {.source = "attention_backward_mma_resident.cu",
                    .entry = "attention_backward_mma_resident",
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(problem.batch * problem.heads * kv_tiles),
                  .threads = static_cast<std::uint32_t>(config.warps) * 32,
                  .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes),
                  .may_start_early = config.programmatic_dependent_launch},
    };
}

kernel::MmaResidentArguments mma_resident_arguments(const AttentionProblem& problem,
                                                    const TileConfig& config,
                                                    const BackwardTensors& tensors,
                                                    const WorkspaceLayout& layout,
                                                    void* workspace) noexcept {
    const std::int64_t batch_heads = problem.batch * problem.heads;
    kernel::MmaResidentArguments arguments{};
    arguments.negated_lse_log2 = layout.negated_lse_log2(workspace);
    arguments.negated_delta = layout.negated_delta(workspace);
    arguments.d_q_accumulator = layout.d_q_accumulator(workspace);
    set_key_gradients(arguments, tensors);
    set_problem(arguments, problem);
    arguments.batch_heads = static_cast<int>(batch_heads);
    // No more than there are: the blocks of a group are counted in 32 bits, as those of the grid.
    arguments.heads_per_group =
        static_cast<int>(std::min<std::int64_t>(config.heads_per_group, batch_heads));
    return arguments;
}

}  // namespace backlight::attention
