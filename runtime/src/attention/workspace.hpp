#pragma once

#include <cstddef>
#include <cstdint>

#include "arguments/attention_backward.h"
#include "arguments/packing.h"
#include "attention/rounds.hpp"
#include "attention/tiles.hpp"
#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"

namespace backlight::attention {

/// How a backward divides its workspace.
struct WorkspaceLayout {
    static constexpr std::size_t alignment = 256;

    static constexpr std::size_t aligned(std::size_t offset) noexcept {
        return (offset + alignment - 1) / alignment * alignment;
    }

    WorkspaceLayout(const AttentionProblem& problem, const TileConfig& config) noexcept {
        if (problem.is_empty()) {
            return;
        }
        const auto head_rows = static_cast<std::size_t>(padded_seqlen_q(problem, config));
        batch_heads =
            static_cast<std::size_t>(problem.batch) * static_cast<std::size_t>(problem.heads);
        const auto heads = static_cast<std::size_t>(workspace_heads(problem));
        rows = heads * head_rows;
        counters_offset = aligned(rows * sizeof(kernel::RowStatistics));
        accumulator_heads = heads;
        std::size_t counters = 0;
        if (converts_d_q(config)) {
            counters = 1 + 2 * batch_heads;
            accumulator_heads =
                static_cast<std::size_t>(Rounds(problem, config).accumulator_heads *
                                         (problem.heads / problem.effective_heads_kv()));
        }
        if (problem.deterministic) {
            counters = 1 + 2 * batch_heads;
            turns = counters;
            counters += rows / static_cast<std::size_t>(config.block_q);
        }
        order_offset = aligned(counters_offset + counters * sizeof(unsigned));
        d_q_accumulator_offset = order_offset;
        if (problem.packed) {
            const auto sequences = static_cast<std::size_t>(problem.batch);
            maps_offset = aligned(order_offset + (sequences + 1) * sizeof(kernel::PackedSequence));
            d_q_accumulator_offset = aligned(maps_offset + sequences * kernel::packed_operands *
                                                               sizeof(kernel::TensorMap));
        }
        bytes = d_q_accumulator_offset + accumulator_heads * head_rows *
                                             static_cast<std::size_t>(tile_head_dim(problem)) *
                                             sizeof(float);
    }

    // Row statistics in the order of fragments, in the same place: first every LSE, then every
    // delta.
    float* negated_lse_log2(void* workspace) const noexcept {
        return static_cast<float*>(workspace);
    }
    float* negated_delta(void* workspace) const noexcept {
        return static_cast<float*>(workspace) + rows;
    }

    kernel::ProgressCounters counters(void* workspace) const noexcept {
        auto* const first =
            reinterpret_cast<unsigned*>(static_cast<std::byte*>(workspace) + counters_offset);
        return {.tickets = first, .added = first + 1, .converted = first + 1 + batch_heads};
    }

    /// Of deterministic problems, (batch, heads, query tiles): one for as many rows as a tile has.
    unsigned* turn_counters(void* workspace) const noexcept {
        return counters(workspace).tickets + turns;
    }

    kernel::RowStatistics* row_statistics(void* workspace) const noexcept {
        return static_cast<kernel::RowStatistics*>(workspace);
    }
    kernel::PackedSequence* packed_order(void* workspace) const noexcept {
        return reinterpret_cast<kernel::PackedSequence*>(static_cast<std::byte*>(workspace) +
                                                         order_offset);
    }
    kernel::TensorMap* packed_maps(void* workspace) const noexcept {
        return reinterpret_cast<kernel::TensorMap*>(static_cast<std::byte*>(workspace) +
                                                    maps_offset);
    }
    float* d_q_accumulator(void* workspace) const noexcept {
        return reinterpret_cast<float*>(static_cast<std::byte*>(workspace) +
                                        d_q_accumulator_offset);
    }

    std::size_t rows = 0;  // of all query tiles
    std::size_t batch_heads = 0;
    std::size_t accumulator_heads = 0;  // of queries, whose dQ the accumulator holds at a time
    std::size_t counters_offset = 0;
    std::size_t turns = 0;  // counters that lie before those of turns
    // Of packed sequences alone.
    std::size_t order_offset = 0;
    std::size_t maps_offset = 0;
    std::size_t d_q_accumulator_offset = 0;
    std::size_t bytes = 0;
};

}  // namespace backlight::attention
