#include <cstdint>
#include <string>

#include "attention/kernels.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

KernelPlan mma_resident_kernel(const AttentionProblem& problem, const TileConfig& config,
                               const device::Target& target, int mma_repeats) {
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, problem);
    const std::string entry = has_wide_heads(problem) ? "attention_backward_mma_resident_wide"
                                                      : "attention_backward_mma_resident";

    compiler::SpecialisationWriter specialisation(entry);
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", tile_head_dim(problem))
        .boolean("causal", is_square_causal(problem, config),
                 "query i attends to keys 0 ... i, of equal lengths in whole tiles")
        .integer("block_q", config.block_q, "query rows a tile")
        .integer("block_kv", config.block_kv, "key rows a thread block")
        .integer("seqlen_q", constant ? problem.seqlen_q : 0, "0: a kernel argument")
        .integer("seqlen_kv", constant ? problem.seqlen_kv : 0, "0: a kernel argument")
        .boolean("converts_d_q", config.converts_d_q, "no kernel follows that does")
        .integer("shared_bytes", static_cast<std::int64_t>(shared_bytes), "as the host counts")
        .integer("shared_bytes_per_multiprocessor",
                 static_cast<std::int64_t>(target.shared_bytes_per_multiprocessor));
    if (has_wide_heads(problem)) {
        specialisation.integer("d_o_stages", config.stages, "places of dO");
    }
    write_key_tile_options(specialisation, problem, config);
    write_mma_repeats(specialisation, mma_repeats);

    // Each takes one ticket.
    const std::int64_t blocks = Rounds(problem, config).tickets();
    return {
        .request = {.source = entry + ".cu",
                    .entry = entry,
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(blocks),
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
    kernel::MmaResidentArguments arguments{};
    arguments.negated_lse_log2 = layout.negated_lse_log2(workspace);
    arguments.negated_delta = layout.negated_delta(workspace);
    arguments.d_q_accumulator = layout.d_q_accumulator(workspace);
    set_key_gradients(arguments, tensors);
    arguments.d_q = tensors.d_q.data;
    arguments.d_q_strides = strides_of(tensors.d_q);
    arguments.counters = layout.counters(workspace);
    set_problem(arguments, problem);
    set_key_tiles(arguments, problem);
    const Rounds rounds(problem, config);
    set_rounds(arguments, problem, rounds);
    arguments.heads_per_group = static_cast<int>(rounds.group_heads);
    arguments.turns = layout.turn_counters(workspace);
    set_packed_work(arguments, problem, layout, workspace);
    return arguments;
}

}  // namespace backlight::attention
