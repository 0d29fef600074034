#pragma once

#include <functional>
#include <numbers>
#include <variant>
#include <vector>

#include "arguments/attention_backward.h"
#include "arguments/attention_backward_mma_resident.h"
#include "arguments/packing.h"
#include "attention/extents.hpp"
#include "attention/mask.hpp"
#include "attention/rounds.hpp"
#include "attention/workspace.hpp"
#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "backlight/tile_config.hpp"
#include "compiler/kernel_store.hpp"
#include "compiler/specialisation.hpp"
#include "device/device.hpp"

namespace backlight::attention {

/// One kernel of the backward for one problem: what is compiled, and how it is launched.
struct KernelPlan {
    compiler::KernelRequest request;
    device::LaunchShape shape;
};

/// Query rows that a block of the delta and convert kernels works on.
inline constexpr int rows_per_block = 64;

/// Keys of which a warpgroup of the wgmma kernel stores dK and dV.
inline constexpr int wgmma_keys_per_warpgroup = 64;

/// Those of one of several forms of a kernel.
template <typename... Forms>
struct KernelArguments {
    std::variant<Forms...> of_form;

    const void* data() const noexcept {
        return std::visit([](const auto& arguments) -> const void* { return &arguments; }, of_form);
    }
};

/// Fills a tensor map: of the operand of that name, whose rows are copied `rows` at a time.
using EncodeMap = std::function<void(const char* operand, const ConstTensorView& view,
                                     const Extents& extents, int rows, kernel::TensorMap& map)>;

// Of sequences in batches, or packed.
using DeltaKernelArguments = KernelArguments<kernel::DeltaArguments, kernel::PackedDeltaArguments>;
using ConvertKernelArguments =
    KernelArguments<kernel::ConvertArguments, kernel::PackedConvertArguments>;

// Each kernel has a file of its own: its specialisation, its launch shape, its arguments. All take
// a problem and configuration that have been validated.

/// attention_backward_delta.cu
KernelPlan delta_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target);
DeltaKernelArguments delta_arguments(const AttentionProblem& problem, const TileConfig& config,
                                     const BackwardTensors& tensors, const WorkspaceLayout& layout,
                                     void* workspace, const EncodeMap& encode);

/// attention_backward_mma.cu. The tensor maps are left for the caller to fill.
KernelPlan mma_kernel(const AttentionProblem& problem, const TileConfig& config,
                      const device::Target& target, int mma_repeats = 1);
kernel::MmaArguments mma_arguments(const AttentionProblem& problem, const BackwardTensors& tensors,
                                   const WorkspaceLayout& layout, void* workspace) noexcept;

/// attention_backward_mma_resident.cu. The tensor maps are left for the caller to fill.
KernelPlan mma_resident_kernel(const AttentionProblem& problem, const TileConfig& config,
                               const device::Target& target, int mma_repeats = 1);
kernel::MmaResidentArguments mma_resident_arguments(const AttentionProblem& problem,
                                                    const TileConfig& config,
                                                    const BackwardTensors& tensors,
                                                    const WorkspaceLayout& layout,
                                                    void* workspace) noexcept;

/// attention_backward_wgmma.cu. The tensor maps are left for the caller to fill.
KernelPlan wgmma_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target);
kernel::WgmmaArguments wgmma_arguments(const AttentionProblem& problem, const TileConfig& config,
                                       const BackwardTensors& tensors,
                                       const WorkspaceLayout& layout, void* workspace) noexcept;

/// The arguments of the main kernel, whichever it is.
using MainArguments =
    KernelArguments<kernel::MmaArguments, kernel::WgmmaArguments, kernel::MmaResidentArguments>;

MainArguments main_arguments(const AttentionProblem& problem, const TileConfig& config,
                             const BackwardTensors& tensors, const WorkspaceLayout& layout,
                             void* workspace, const EncodeMap& encode);

/// The tensor map of one of its operands (Q, dO: seqlen_q rows in tiles of block_q; K, V: seqlen_kv
/// rows in tiles of block_kv).
tensor_map::Request tile_map_request(DataType type, const ConstTensorView& view,
                                     const Extents& extents, int tile_rows) noexcept;

/// attention_backward_convert.cu, for kernels that do not convert dQ themselves.
KernelPlan convert_kernel(const AttentionProblem& problem, const TileConfig& config,
                          const device::Target& target);
ConvertKernelArguments convert_arguments(const AttentionProblem& problem, const TileConfig& config,
                                         const BackwardTensors& tensors,
                                         const WorkspaceLayout& layout, void* workspace) noexcept;

/// Most times that a product may be made for `backward_chain`'s measurement.
inline constexpr int most_mma_repeats = 64;

/// The whole chain in launch order, after validation: delta, main and, where that does not convert
/// dQ itself, convert. Nothing for a problem without scores.
/// `mma_repeats` is for measuring alone and no part of a configuration: the main kernel makes every
/// product so many times, all but the first with zeros (docs/emulated_tensor_rate.md). Throws
/// `unsupported` for a kernel whose products are not mma.sync's, and `invalid_argument` for a
/// number that is not 1 … `most_mma_repeats`.
std::vector<KernelPlan> backward_chain(const AttentionProblem& problem, const TileConfig& config,
                                       const device::Target& target, int mma_repeats = 1);

/// The constant that repeats products, where they are repeated: a kernel's text, by which the cache
/// finds it, says nothing of it otherwise.
void write_mma_repeats(compiler::SpecialisationWriter& specialisation, int mma_repeats);

/// Constants of kernel_sources/problem_options.cuh, likewise where the problem needs them alone.
void write_partial_query_tiles(compiler::SpecialisationWriter& specialisation,
                               const AttentionProblem& problem, const TileConfig& config);
void write_packed(compiler::SpecialisationWriter& specialisation, const AttentionProblem& problem,
                  const TileConfig& config);
void write_head_dims(compiler::SpecialisationWriter& specialisation,
                     const AttentionProblem& problem);
void write_gradient_type(compiler::SpecialisationWriter& specialisation,
                         const AttentionProblem& problem);
void write_deterministic(compiler::SpecialisationWriter& specialisation,
                         const AttentionProblem& problem);

/// All of them, for kernels whose blocks own tiles of keys (attention_backward_rounds/mask.cuh).
void write_key_tile_options(compiler::SpecialisationWriter& specialisation,
                            const AttentionProblem& problem, const TileConfig& config);

/// The causal mask over equal lengths of whole tiles, whose diagonal lies in all tiles alike: those
/// kernels have a constant of its own for it, `causal`. Groups of heads do without what that saves:
/// it would cost their loop registers that it has not.
bool is_square_causal(const AttentionProblem& problem, const TileConfig& config);

/// What `inspect` and a plan tell of a compiled kernel.
KernelResources kernel_resources(const KernelPlan& plan, const compiler::KernelLookup& compiled);

/// The name of a data type in kernel sources.
std::string_view element_type(DataType type) noexcept;

/// What the arguments of every main kernel take from the problem.
template <typename Arguments>
void set_problem(Arguments& arguments, const AttentionProblem& problem) noexcept {
    arguments.softmax_scale = problem.effective_softmax_scale();
    arguments.softmax_scale_log2 = arguments.softmax_scale * std::numbers::log2e_v<float>;
    arguments.heads = static_cast<int>(problem.heads);
    arguments.seqlen_q = static_cast<int>(problem.seqlen_q);
    arguments.seqlen_kv = static_cast<int>(problem.seqlen_kv);
}

/// Where packed sequences lie, of queries and of keys.
inline kernel::PackedRows packed_queries(const AttentionProblem& problem,
                                         const BackwardTensors& tensors) noexcept {
    return {.cu_seqlens = tensors.cu_seqlens_q,
            .seqused = tensors.seqused_q,
            .total = static_cast<int>(problem.packed->total_q),
            .longest = static_cast<int>(problem.seqlen_q)};
}
inline kernel::PackedRows packed_keys(const AttentionProblem& problem,
                                      const BackwardTensors& tensors) noexcept {
    return {.cu_seqlens = tensors.cu_seqlens_kv,
            .seqused = tensors.seqused_kv,
            .total = static_cast<int>(problem.packed->total_kv),
            .longest = static_cast<int>(problem.seqlen_kv)};
}

inline kernel::Strides strides_of(const ConstTensorView& view) noexcept {
    return {view.stride_batch, view.stride_head, view.stride_seqlen};
}

/// What the arguments of kernels whose blocks own tiles of keys take from it besides.
template <typename Arguments>
void set_key_tiles(Arguments& arguments, const AttentionProblem& problem) noexcept {
    arguments.heads = static_cast<int>(problem.effective_heads_kv());
    arguments.heads_per_kv_head = static_cast<int>(problem.heads / problem.effective_heads_kv());
    const MaskBand band =
        problem.packed ? MaskBand::around_own_diagonal(problem) : MaskBand(problem);
    arguments.first_diagonal = static_cast<int>(band.first_diagonal);
    arguments.last_diagonal = static_cast<int>(band.last_diagonal);
}

/// What the arguments of kernels with rounds of tickets take from those.
template <typename Arguments>
void set_rounds(Arguments& arguments, const AttentionProblem& problem,
                const Rounds& rounds) noexcept {
    arguments.batch_heads = static_cast<int>(problem.batch * problem.effective_heads_kv());
    arguments.tickets = static_cast<int>(rounds.tickets());
    arguments.conversion_lag = static_cast<int>(rounds.conversion_lag);
    arguments.accumulator_heads = static_cast<int>(rounds.accumulator_heads);
}

/// Where kernels find what the delta kernel has prepared of packed sequences.
template <typename Arguments>
void set_packed_work(Arguments& arguments, const AttentionProblem& problem,
                     const WorkspaceLayout& layout, void* workspace) noexcept {
    if (problem.packed) {
        arguments.packed = {.order = layout.packed_order(workspace),
                            .maps = layout.packed_maps(workspace),
                            .sequences = static_cast<int>(problem.batch)};
    }
}

/// dK and dV of kernels that store them by plain stores.
template <typename Arguments>
void set_key_gradients(Arguments& arguments, const BackwardTensors& tensors) noexcept {
    arguments.d_k = tensors.d_k.data;
    arguments.d_v = tensors.d_v.data;
    arguments.d_k_strides = strides_of(tensors.d_k);
    arguments.d_v_strides = strides_of(tensors.d_v);
}

}  // namespace backlight::attention
