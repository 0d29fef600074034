#include <cstdint>

#include "attention/kernels.hpp"
#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

namespace {
constexpr int delta_threads = 256;
/// Each prepares a packed sequence.
constexpr int delta_warps = delta_threads / 32;
}  // namespace

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
    write_packed(specialisation, problem, config);
    write_head_dims(specialisation, problem);
    write_deterministic(specialisation, problem);
    std::int64_t blocks =
        problem.batch * problem.heads * tiles_of(padded_seqlen_q(problem, config), rows_per_block);
    std::size_t map_bytes = 0;
    if (problem.packed) {
        blocks = ceiling_quotient(problem.batch, delta_warps) +
                 problem.heads * packed_row_blocks(problem, rows_per_block);
        map_bytes = delta_warps * kernel::packed_operands * sizeof(kernel::TensorMap);
    }
    return {
        .request = {.source = "attention_backward_delta.cu",
                    .entry = "attention_backward_delta",
                    .specialisation = specialisation.text(),
                    .target = target},
        // The first of the chain: it waits for whatever came before it in the stream.
        .shape = {.blocks = static_cast<std::uint32_t>(blocks),
                  .threads = delta_threads,
                  .dynamic_shared_bytes = static_cast<std::uint32_t>(map_bytes)},
    };
}

DeltaKernelArguments delta_arguments(const AttentionProblem& problem, const TileConfig& config,
                                     const BackwardTensors& tensors, const WorkspaceLayout& layout,
                                     void* workspace, const EncodeMap& encode) {
    const kernel::DeltaArguments arguments{
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
    if (!problem.packed) {
        return {arguments};
    }
    kernel::PackedDeltaArguments packed{arguments};
    packed.packing = {.q = packed_queries(problem, tensors),
                      .kv = packed_keys(problem, tensors),
                      .sequences = static_cast<int>(problem.batch)};
    const auto operand = [&](kernel::PackedOperandIndex index, const char* name,
                             const ConstTensorView& view, const Extents& extents, int rows,
                             bool of_keys) {
        kernel::PackedOperand& whole = packed.operands[index];
        encode(name, view, extents, rows, whole.map);
        whole.data = view.data;
        constexpr std::int64_t element_bytes = 2;
        whole.row_bytes = view.stride_seqlen * element_bytes;
        whole.of_keys = of_keys ? 1 : 0;
    };
    operand(kernel::packed_q, "q", tensors.q, query_extents(problem), config.block_q, false);
    operand(kernel::packed_d_o, "d_o", tensors.d_o, output_extents(problem), config.block_q, false);
    operand(kernel::packed_k, "k", tensors.k, key_extents(problem), config.block_kv, true);
    operand(kernel::packed_v, "v", tensors.v, value_extents(problem), config.block_kv, true);
    packed.operands_used = kernel::packed_inputs;
    if (config.family == KernelFamily::wgmma && problem.gradient_type != GradientType::fp32) {
        operand(kernel::packed_d_q, "d_q", tensors.d_q, query_extents(problem), config.block_q,
                false);
        operand(kernel::packed_d_k, "d_k", tensors.d_k, key_extents(problem),
                wgmma_keys_per_warpgroup, true);
        operand(kernel::packed_d_v, "d_v", tensors.d_v, value_extents(problem),
                wgmma_keys_per_warpgroup, true);
        packed.operands_used = kernel::packed_operands;
    }
    packed.order = layout.packed_order(workspace);
    packed.maps = layout.packed_maps(workspace);
    packed.heads_kv = static_cast<int>(problem.effective_heads_kv());
    packed.most_key_tiles = static_cast<int>(packed_kv_tiles(problem, config));
    return {packed};
}

}  // namespace backlight::attention
