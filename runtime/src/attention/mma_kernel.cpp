#include <cstdint>

#include "attention/kernels.hpp"
#include "compiler/specialisation.hpp"

namespace backlight::attention {

KernelPlan mma_kernel(const AttentionProblem& problem, const TileConfig& config,
                      const device::Target& target, int mma_repeats) {
    const bool constant = config.sequence_lengths == SequenceLengths::compile_time;
    const std::size_t shared_bytes = shared_memory_bytes(config, problem);

    compiler::SpecialisationWriter specialisation("attention_backward_mma");
    specialisation.type("Element", element_type(problem.dtype))
        .integer("head_dim", problem.head_dim)
        .boolean("causal", problem.causal, "query i attends to keys 0 ... i")
        .integer("block_q", config.block_q, "query rows a tile")
        .integer("block_kv", config.block_kv, "key rows a thread block")
        .integer("warps", config.warps)
        .integer("stages", config.stages, "buffers for the Q and dO tiles")
        .integer("seqlen_q", constant ? problem.seqlen_q : 0, "0: a kernel argument")
        .integer("seqlen_kv", constant ? problem.seqlen_kv : 0, "0: a kernel argument")
        .integer("shared_bytes", static_cast<std::int64_t>(shared_bytes), "as the host counts")
        .integer("shared_bytes_per_multiprocessor",
                 static_cast<std::int64_t>(target.shared_bytes_per_multiprocessor));
    write_mma_repeats(specialisation, mma_repeats);

    const std::int64_t kv_tiles = problem.seqlen_kv / config.block_kv;
    return {
        .request = {.source = "attention_backward_mma.cu",
                    .entry = "attention_backward_mma",
                    .specialisation = specialisation.text(),
                    .target = target},
        .shape = {.blocks = static_cast<std::uint32_t>(problem.batch * problem.heads * kv_tiles),
                  .threads = static_cast<std::uint32_t>(config.warps) * 32,
                  .dynamic_shared_bytes = static_cast<std::uint32_t>(shared_bytes),
                  .may_start_early = config.programmatic_dependent_launch},
    };
}

kernel::MmaArguments mma_arguments(const AttentionProblem& problem, const BackwardTensors& tensors,
                                   const WorkspaceLayout& layout, void* workspace) noexcept {
    kernel::MmaArguments arguments{};
    arguments.row_statistics = layout.row_statistics(workspace);
    arguments.d_q_accumulator = layout.d_q_accumulator(workspace);
    set_key_gradients(arguments, tensors);
    set_problem(arguments, problem);
    return arguments;
}

tensor_map::Request tile_map_request(DataType type, const ConstTensorView& view,
                                     const Extents& extents, int tile_rows) noexcept {
    // A stride over a single index is never used, but must still obey TMA's rules.
    const auto stride = [&](std::int64_t extent, std::int64_t given) {
        return extent == 1 ? extents.head_dim : given;
    };
    constexpr std::int64_t panel_columns = 64;  // 128 bytes, the widest swizzle
    return {
        .address = view.data,
        .type =
            type == DataType::fp16 ? tensor_map::ElementType::fp16 : tensor_map::ElementType::bf16,
        .extents = {extents.head_dim, extents.seqlen, extents.heads, extents.batch},
        .strides = {stride(extents.seqlen, view.stride_seqlen),
                    stride(extents.heads, view.stride_head),
                    stride(extents.batch, view.stride_batch)},
        .box = {panel_columns, tile_rows, 1, 1},
        .swizzle = tensor_map::Swizzle::bytes_128,
    };
}

}  // namespace backlight::attention
