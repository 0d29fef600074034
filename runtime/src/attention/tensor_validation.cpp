// What tensors and workspaces are checked for, on every run.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attention/extents.hpp"
#include "attention/validation.hpp"
#include "attention/workspace.hpp"
#include "backlight/error.hpp"
#include "gradient_values.hpp"

namespace backlight::attention {

namespace {

[[noreturn]] void refuse(const std::string& message) {
    throw Error(ErrorCode::invalid_argument, message);
}

constexpr std::int64_t stride_limit = std::int64_t{1} << 39;

/// Extents of a tensor, with the stride over each.
struct Dimension {
    std::string_view name;
    std::int64_t extent;
    std::int64_t stride;
};

using Dimensions = std::array<Dimension, 3>;

Dimensions dimensions(const Extents& extents, const ConstTensorView& view) {
    return {{{"batch", extents.batch, view.stride_batch},
             {"head", extents.heads, view.stride_head},
             {"seqlen", extents.seqlen, view.stride_seqlen}}};
}

/// Inputs may be broadcast: with a stride of 0 all indices of the dimension are one place.
enum class Use { input, output };

void require_stride(std::string_view name, const Dimension& dimension, Use use) {
    if (dimension.extent == 1) {
        return;  // Never stepped over.
    }
    const bool output = use == Use::output;
    if (dimension.stride < (output ? 1 : 0) || dimension.stride >= stride_limit) {
        refuse(fmt::format("{}.stride_{} is {}: it must be {} and below 2^39 elements", name,
                           dimension.name, dimension.stride, output ? "positive" : "0 or more"));
    }
}

void require_tensor(std::string_view name, const ConstTensorView& view,
                    const Dimensions& dimensions, std::int64_t element_bytes, Use use) {
    // TMA demands it of a stride; vector loads and stores do too.
    const std::int64_t stride_unit = 16 / element_bytes;
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    if (address == 0) {
        refuse(fmt::format("{}.data is null: it must point to device memory", name));
    }
    if (address % 16 != 0) {
        refuse(fmt::format("{}.data is {:#x}: it must be a multiple of 16 bytes", name, address));
    }
    for (const Dimension& dimension : dimensions) {
        require_stride(name, dimension, use);
        if (dimension.extent != 1 && dimension.stride % stride_unit != 0) {
            refuse(
                fmt::format("{}.stride_{} is {}: it must be a multiple of {} elements (16 bytes)",
                            name, dimension.name, dimension.stride, stride_unit));
        }
    }
}

/// Two different elements of an output must not share an address: the kernels would race.
void require_no_self_overlap(std::string_view name, Dimensions dimensions, std::int64_t head_dim) {
    // Three elements: an insertion sort by stride, without a library call that might allocate.
    for (std::size_t i = 1; i < dimensions.size(); ++i) {
        for (std::size_t j = i; j > 0 && dimensions[j].stride < dimensions[j - 1].stride; --j) {
            std::swap(dimensions[j], dimensions[j - 1]);
        }
    }
    // Each stride must step over all that the smaller ones reach. In 128 bits: 2^31 steps of 2^39
    // elements, three times over, do not fit 64.
    __int128 reach = head_dim - 1;
    for (const Dimension& dimension : dimensions) {
        if (dimension.extent == 1) {
            continue;
        }
        if (dimension.stride <= reach) {
            refuse(
                fmt::format("{}.stride_{} is {}: an output must not overlap itself, and the "
                            "dimensions of smaller stride reach beyond that",
                            name, dimension.name, dimension.stride));
        }
        reach += static_cast<__int128>(dimension.extent - 1) * dimension.stride;
    }
}

std::array<std::pair<std::string_view, const void*>, 4> sequence_arrays(
    const BackwardTensors& tensors) {
    return {{{"cu_seqlens_q", tensors.cu_seqlens_q},
             {"cu_seqlens_kv", tensors.cu_seqlens_kv},
             {"seqused_q", tensors.seqused_q},
             {"seqused_kv", tensors.seqused_kv}}};
}

void validate_sequence_arrays(const BackwardTensors& tensors, const AttentionProblem& problem) {
    for (const auto& [name, data] : sequence_arrays(tensors)) {
        if (!problem.packed) {
            if (data != nullptr) {
                refuse(fmt::format("{} is {}: it must be null, as the problem is not packed", name,
                                   data));
            }
            continue;
        }
        if (data == nullptr && name.starts_with("cu_")) {
            refuse(
                fmt::format("{} is null: it must point to batch + 1 = {} numbers in device "
                            "memory, as the problem is packed",
                            name, problem.batch + 1));
        }
        if (reinterpret_cast<std::uintptr_t>(data) % alignof(std::int32_t) != 0) {
            refuse(fmt::format("{} is {}: it must be a multiple of 4 bytes", name, data));
        }
    }
}

}  // namespace

void validate(const BackwardTensors& tensors, const AttentionProblem& problem) {
    struct Named {
        std::string_view name;
        ConstTensorView view;
        Extents extents;
        bool output;
    };
    const Extents queries = query_extents(problem);
    const Extents keys = key_extents(problem);
    const Extents values = value_extents(problem);
    const Extents out = output_extents(problem);
    const std::array<Named, 8> all = {{
        {"q", tensors.q, queries, false},
        {"k", tensors.k, keys, false},
        {"v", tensors.v, values, false},
        {"o", tensors.o, out, false},
        {"d_o", tensors.d_o, out, false},
        {"d_q", tensors.d_q, queries, true},
        {"d_k", tensors.d_k, keys, true},
        {"d_v", tensors.d_v, values, true},
    }};
    const auto gradient_bytes = static_cast<std::int64_t>(gradient_element_bytes(problem));
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Named& tensor = all[i];
        if (tensor.extents.seqlen == 0) {
            continue;  // It has no elements, and no memory.
        }
        const Dimensions extents = dimensions(tensor.extents, tensor.view);
        require_tensor(tensor.name, tensor.view, extents, tensor.output ? gradient_bytes : 2,
                       tensor.output ? Use::output : Use::input);
        if (!tensor.output) {
            continue;
        }
        require_no_self_overlap(tensor.name, extents, tensor.extents.head_dim);
        const auto require_own_memory = [&](std::string_view other, std::string_view member,
                                            const void* data) {
            if (data == tensor.view.data) {
                refuse(
                    fmt::format("{}.data and {}{} are both {}: an output needs memory of its "
                                "own",
                                tensor.name, other, member, data));
            }
        };
        for (std::size_t j = 0; j < i; ++j) {
            if (all[j].extents.seqlen != 0) {
                require_own_memory(all[j].name, ".data", all[j].view.data);
            }
        }
        if (queries.seqlen != 0) {
            require_own_memory("lse", ".data", tensors.lse.data);
        }
        for (const auto& [name, data] : sequence_arrays(tensors)) {
            require_own_memory(name, "", data);
        }
    }
    validate_sequence_arrays(tensors, problem);
    if (queries.seqlen == 0) {
        return;  // There are no row sums.
    }
    const auto lse = reinterpret_cast<std::uintptr_t>(tensors.lse.data);
    if (lse == 0) {
        refuse("lse.data is null: it must point to device memory");
    }
    if (lse % alignof(float) != 0) {
        refuse(fmt::format("lse.data is {:#x}: it must be a multiple of 4 bytes", lse));
    }
    const std::array<Dimension, 2> rows = {{{"batch", queries.batch, tensors.lse.stride_batch},
                                            {"head", queries.heads, tensors.lse.stride_head}}};
    for (const Dimension& dimension : rows) {
        require_stride("lse", dimension, Use::input);
    }
}

void validate_workspace(const BackwardTensors& tensors, const void* workspace,
                        std::size_t given_bytes, std::size_t needed_bytes,
                        const AttentionProblem& problem) {
    if (needed_bytes == 0) {
        return;
    }
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    if (address == 0) {
        refuse("workspace is null: it must point to device memory");
    }
    if (address % WorkspaceLayout::alignment != 0) {
        refuse(fmt::format("workspace is {}: it must be a multiple of {} bytes", workspace,
                           WorkspaceLayout::alignment));
    }
    if (given_bytes < needed_bytes) {
        throw Error(ErrorCode::workspace_too_small,
                    fmt::format("workspace_bytes is {}: this problem needs {} ({})", given_bytes,
                                needed_bytes, to_string(problem)));
    }
    const auto arrays = sequence_arrays(tensors);
    const std::array<std::pair<std::string_view, const void*>, 13> all = {{
        {"q.data", tensors.q.data},
        {"k.data", tensors.k.data},
        {"v.data", tensors.v.data},
        {"o.data", tensors.o.data},
        {"d_o.data", tensors.d_o.data},
        {"lse.data", tensors.lse.data},
        {"d_q.data", tensors.d_q.data},
        {"d_k.data", tensors.d_k.data},
        {"d_v.data", tensors.d_v.data},
        arrays[0],
        arrays[1],
        arrays[2],
        arrays[3],
    }};
    for (const auto& [name, data] : all) {
        // Unsigned: an address below the workspace is far above it.
        if (reinterpret_cast<std::uintptr_t>(data) - address < needed_bytes) {
            refuse(
                fmt::format("{} is {}, within the workspace of {} bytes at {}: it needs "
                            "memory of its own",
                            name, data, needed_bytes, workspace));
        }
    }
}

}  // namespace backlight::attention
