#include <cstdint>

#include "attention/kernels.hpp"
#include "attention/mask.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

namespace {

/// The causal mask over equal lengths of whole tiles, whose diagonal lies in all tiles alike.
/// Groups of heads do without what that saves: it would cost their loop registers that it has not.
bool is_square_causal(const AttentionProblem& problem, const TileConfig& config) {
    const MaskBand band(problem);
    return !problem.packed && band.last_diagonal == 0 && !band.is_bounded_first(problem) &&
           problem.seqlen_q == problem.seqlen_kv && problem.seqlen_q % config.block_kv == 0 &&
           problem.heads == problem.effective_heads_kv();
}

void write_band(compiler::SpecialisationWriter& specialisation, const AttentionProblem& problem,
                const TileConfig& config) {
    const MaskBand band(problem);
    if (is_square_causal(problem, config)) {
        return;
    }
    // What a mask cuts off of packed sequences, the lengths of each decide.
    const bool first =
        problem.packed ? problem.window_left.has_value() : band.is_bounded_first(problem);
    const bool last =
        problem.packed ? problem.causal || problem.window_right : band.is_bounded_last(problem);
    // A window has both bounds, even where the second cuts nothing off.
    if (first || last) {
        specialisation.boolean("bounded_last_diagonal", true, "keys after it are hidden");
    }
    if (first) {
        specialisation.boolean("bounded_first_diagonal", true, "keys before it are hidden");
    }
    if (problem.packed && (first || last) &&
        problem.mask_alignment == MaskAlignment::bottom_right) {
        specialisation.boolean("mask_from_end", true, "the last query stands at the last key");
    }
}

}  // namespace

KernelPlan mma_resident_kernel(const AttentionProblem& problem, const TileConfig& config,
                               const device::Target& target, int mma_repeats) {
    const bool packed = problem.packed.has_value();
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, tile_head_dim(problem), packed);

    compiler::SpecialisationWriter specialisation("attention_backward_mma_resident");
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
    write_partial_query_tiles(specialisation, problem, config);
    if (packed) {
        specialisation.boolean("packed", true, "sequences of lengths that the device tells");
        specialisation.boolean("partial_key_tiles", true, "theirs may be any");
    } else if (problem.seqlen_kv % config.block_kv != 0) {
        specialisation.boolean("partial_key_tiles", true, "seqlen_kv is no multiple of block_kv");
    }
    write_head_dims(specialisation, problem);
    write_gradient_type(specialisation, problem);
    write_band(specialisation, problem, config);
    if (problem.heads != problem.effective_heads_kv()) {
        specialisation.boolean("grouped_heads", true, "several of queries use one of keys");
    }
    write_mma_repeats(specialisation, mma_repeats);

    // Each takes one ticket.
    const std::int64_t blocks = Rounds(problem, config).tickets();
    return {
        .request = {.source = "attention_backward_mma_resident.cu",
                    .entry = "attention_backward_mma_resident",
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
    arguments.heads = static_cast<int>(problem.effective_heads_kv());
    arguments.heads_per_kv_head = static_cast<int>(problem.heads / problem.effective_heads_kv());
    const Rounds rounds(problem, config);
    set_rounds(arguments, problem, rounds);
    arguments.heads_per_group = static_cast<int>(rounds.group_heads);
    const MaskBand band =
        problem.packed ? MaskBand::around_own_diagonal(problem) : MaskBand(problem);
    arguments.first_diagonal = static_cast<int>(band.first_diagonal);
    arguments.last_diagonal = static_cast<int>(band.last_diagonal);
    if (problem.packed) {
        arguments.packed = {.order = layout.packed_order(workspace),
                            .maps = layout.packed_maps(workspace),
                            .sequences = static_cast<int>(problem.batch)};
    }
    return arguments;
}

}  // namespace backlight::attention
