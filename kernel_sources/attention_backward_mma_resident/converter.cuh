// The conversion of dQ to its own type by the blocks of the register-resident mma kernel.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/d_q_fragments.cuh"
#include "attention_backward_mma_resident/layout.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// dQ = softmax_scale · accumulator, rounded and stored (or added), of query tiles of a head whose
/// key tiles have all been worked on; zeros take its place where another head's dQ will lie there.
/// By all threads of a block, while its own first tiles are on their way: the registers of its
/// gradients are free until then.
class Converter {
  public:
    __device__ __forceinline__ Converter(const MmaResidentArguments& arguments, int thread)
        : arguments_(arguments), thread_(thread), rows_(thread) {}

    __device__ __forceinline__ void convert(const Conversion& conversion) const {
        if (thread_ == 0) {
            wait_until_added(conversion);
        }
        __syncthreads();

        const bool leaves_zeros = !packed && place_has_next(arguments_, conversion.batch_head);
        float* const accumulator = accumulator_of(arguments_, conversion);
        const Strides& strides = arguments_.d_q_strides;
        const int heads_per_kv_head = heads_per_kv_head_of(arguments_);
        Gradient* const d_q = d_q_of(conversion, heads_per_kv_head);
        const int seqlen_q = packed ? conversion.seqlen_q : seqlen_q_of(arguments_);
        const int end = (conversion.first_query_tile + conversion.query_tiles) * block_q;
#pragma unroll 1
        for (int64_t row = conversion.first_query_tile * block_q + rows_.first_row; row < end;
             row += steps_at_once * Rows::rows_a_step) {
            FragmentPiece pieces[steps_at_once];
            each_step(row, end, [&](int step, int64_t at) {
                pieces[step].load(rows_.source(accumulator, at));
            });
            if (leaves_zeros) {
                each_step(row, end,
                          [&](int, int64_t at) { zero_piece(rows_.source(accumulator, at)); });
            }
            // All that dQ holds is on its way before the first store.
#pragma unroll
            for (int pass = specialisation::accumulates_gradients ? 0 : 1; pass < 2; ++pass) {
                each_step(row, end, [&](int step, int64_t at) {
                    int64_t row_in_head = at;
                    Gradient* d_q_of_head = d_q;
                    if constexpr (grouped_heads) {
                        row_in_head = at % padded_seqlen_q_of(arguments_, conversion);
                        d_q_of_head +=
                            at / padded_seqlen_q_of(arguments_, conversion) * strides.head;
                    }
                    if (pass == 0) {
                        pieces[step].add(
                            rows_.destination(d_q_of_head, row_in_head, strides.seqlen),
                            strides.seqlen, arguments_.softmax_scale,
                            rows_.rows_from(row_in_head, seqlen_q));
                    } else {
                        pieces[step].store(
                            rows_.destination(d_q_of_head, row_in_head, strides.seqlen),
                            strides.seqlen, scale_at_store(arguments_.softmax_scale),
                            rows_.rows_from(row_in_head, seqlen_q));
                    }
                });
            }
        }
        if (leaves_zeros) {
            __syncthreads();
            if (thread_ == 0) {
                count_global(arguments_.counters.converted + conversion.batch_head);
            }
        }
    }

  private:
    __device__ __forceinline__ void wait_until_added(const Conversion& conversion) const {
        if constexpr (packed) {
            wait_for_global_counter<256>(arguments_.counters.added + conversion.batch_head,
                                         static_cast<uint32_t>(conversion.key_tiles));
        } else {
            kernel::wait_until_added(arguments_, conversion.batch_head);
        }
    }

    /// dQ of the first head of queries that the conversion is of.
    __device__ __forceinline__ Gradient* d_q_of(const Conversion& conversion,
                                                int heads_per_kv_head) const {
        const Strides& strides = arguments_.d_q_strides;
        Gradient* const d_q = static_cast<Gradient*>(arguments_.d_q);
        if constexpr (packed) {
            return d_q + conversion.q_begin * strides.seqlen +
                   conversion.head * heads_per_kv_head * strides.head;
        } else {
            return d_q + conversion.batch_head / arguments_.heads * strides.batch +
                   conversion.batch_head % arguments_.heads * heads_per_kv_head * strides.head;
        }
    }

    using Rows = FragmentRows<head_dim, threads>;

    /// All loads of a share of as many queries as the block has keys are on their way at once.
    static constexpr int steps_at_once = block_kv / Rows::rows_a_step;

    template <typename Action>
    __device__ __forceinline__ static void each_step(int64_t row, int end, const Action& action) {
#pragma unroll
        for (int step = 0; step < steps_at_once; ++step) {
            if (row + step * Rows::rows_a_step < end) {
                action(step, row + step * Rows::rows_a_step);
            }
        }
    }

    const MmaResidentArguments& arguments_;
    int thread_;
    Rows rows_;
};

}  // namespace backlight::kernel
