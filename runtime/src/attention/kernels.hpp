#pragma once

#include <functional>
#include <numbers>
#include <variant>
#include <vector>

#include "arguments/attention_backward.h"
#include "arguments/attention_backward_mma_resident.h"
#include "attention/workspace.hpp"
#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "backlight/tile_config.hpp"
#include "compiler/kernel_store.hpp"
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

// Each kernel has a file of its own: its specialisation, its launch shape, its arguments. All take
// a problem and configuration that have been validated.

/// attention_backward_delta.cu
KernelPlan delta_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target);
kernel::DeltaArguments delta_arguments(const AttentionProblem& problem,
                                       const BackwardTensors& tensors,
                                       const WorkspaceLayout& layout, void* workspace) noexcept;

/// attention_backward_mma.cu. The tensor maps are left for the caller to fill.
KernelPlan mma_kernel(const AttentionProblem& problem, const TileConfig& config,
                      const device::Target& target);
kernel::MmaArguments mma_arguments(const AttentionProblem& problem, const BackwardTensors& tensors,
                                   const WorkspaceLayout& layout, void* workspace) noexcept;

/// attention_backward_mma_resident.cu. The tensor maps are left for the caller to fill.
KernelPlan mma_resident_kernel(const AttentionProblem& problem, const TileConfig& config,
                               const device::Target& target);
kernel::MmaResidentArguments mma_resident_arguments(const AttentionProblem& problem,
                                                    const TileConfig& config,
                                                    const BackwardTensors& tensors,
                                                    const WorkspaceLayout& layout,
                                                    void* workspace) noexcept;

/// attention_backward_wgmma.cu. The tensor maps are left for the caller to fill.
KernelPlan wgmma_kernel(const AttentionProblem& problem, const TileConfig& config,
                        const device::Target& target);
kernel::WgmmaArguments wgmma_arguments(const AttentionProblem& problem, const TileConfig& config,
                                       const WorkspaceLayout& layout, void* workspace) noexcept;

/// Pieces of work that its blocks share: key tiles, and what its rounds need besides.
std::int64_t wgmma_tickets(const AttentionProblem& problem, const TileConfig& config) noexcept;

/// The arguments of the main kernel, whichever it is.
struct MainArguments {
    std::variant<kernel::MmaArguments, kernel::WgmmaArguments, kernel::MmaResidentArguments>
        of_family;

    const void* data() const noexcept {
        return std::visit([](const auto& arguments) -> const void* { return &arguments; },
                          of_family);
    }
};

/// Fills a tensor map: of the operand of that name, whose rows are copied `rows` at a time.
using EncodeMap = std::function<void(const char* operand, const ConstTensorView& view,
                                     std::int64_t seqlen, int rows, kernel::TensorMap& map)>;

MainArguments main_arguments(const AttentionProblem& problem, const TileConfig& config,
                             const BackwardTensors& tensors, const WorkspaceLayout& layout,
                             void* workspace, const EncodeMap& encode);

/// The tensor map of one of its operands (Q, dO: seqlen_q rows in tiles of block_q; K, V: seqlen_kv
/// rows in tiles of block_kv).
tensor_map::Request tile_map_request(const AttentionProblem& problem, const ConstTensorView& view,
                                     std::int64_t seqlen, int tile_rows) noexcept;

/// attention_backward_convert.cu; the wgmma kernel needs none.
KernelPlan convert_kernel(const AttentionProblem& problem, const TileConfig& config,
                          const device::Target& target);
kernel::ConvertArguments convert_arguments(const AttentionProblem& problem,
                                           const BackwardTensors& tensors,
                                           const WorkspaceLayout& layout, void* workspace) noexcept;

/// The whole chain in launch order, after validation: delta, main and, but after wgmma, convert.
/// Nothing for a problem without scores.
std::vector<KernelPlan> backward_chain(const AttentionProblem& problem, const TileConfig& config,
                                       const device::Target& target);

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

inline kernel::Strides strides_of(const ConstTensorView& view) noexcept {
    return {view.stride_batch, view.stride_head, view.stride_seqlen};
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
