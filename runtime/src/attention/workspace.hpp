#pragma once

#include <cstddef>
#include <cstdint>

#include "arguments/attention_backward.h"
#include "backlight/problem.hpp"

namespace backlight::attention {

/// How a backward divides its workspace.
struct WorkspaceLayout {
    static constexpr std::size_t alignment = 256;

    explicit WorkspaceLayout(const AttentionProblem& problem) noexcept {
        rows = static_cast<std::size_t>(problem.batch) * static_cast<std::size_t>(problem.heads) *
               static_cast<std::size_t>(problem.seqlen_q);
        const std::size_t statistics = rows * sizeof(kernel::RowStatistics);
        d_q_accumulator_offset = (statistics + alignment - 1) / alignment * alignment;
        bytes = d_q_accumulator_offset +
                rows * static_cast<std::size_t>(problem.head_dim) * sizeof(float);
    }

    // wgmma's row statistics, in the same place: first every LSE, then every delta.
    float* negated_lse_log2(void* workspace) const noexcept {
        return static_cast<float*>(workspace);
    }
    float* negated_delta(void* workspace) const noexcept {
        return static_cast<float*>(workspace) + rows;
    }

    kernel::RowStatistics* row_statistics(void* workspace) const noexcept {
        return static_cast<kernel::RowStatistics*>(workspace);
    }
    float* d_q_accumulator(void* workspace) const noexcept {
        return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) +
                                        d_q_accumulator_offset);
    }

    std::size_t rows = 0;  // of all queries
    std::size_t d_q_accumulator_offset = 0;
    std::size_t bytes = 0;
};

}  // namespace backlight::attention
