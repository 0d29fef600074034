// The conversion of dQ to its own type, by the loader warpgroup's other warps.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/gradient_stores.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/conversion.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

/// dQ = softmax_scale · accumulator, rounded and stored, of query tiles of heads whose key tiles
/// have all been worked on. Two or three warps that have nothing else to do. A part comes in two
/// halves of 32 columns, as they lie, the next ones on their way meanwhile, and leaves as rows.
/// Zeros take its place where another head's dQ will lie there.
class Converter {
  public:
    __device__ __forceinline__ Converter(const WgmmaArguments& arguments, SharedMemory shared,
                                         int thread)
        : arguments_(arguments), shared_(shared), thread_(thread) {}

    __device__ __forceinline__ void work() {
        store_zeros();
        PostedWork posted(shared_);
        for (HeldWork work = posted.next(lane()); !work.is_end(); work = posted.next(lane())) {
            if (work.has_conversion()) {
                convert(with_rows(work.conversion));
            }
            posted.done(lane());
        }
        if (leads()) {
            bulk_wait<0>();
        }
    }

  private:
    static constexpr int half_elements = conversion_buffer_bytes / 4;
    static constexpr int half_columns = d_q_part_columns / 2;
    static constexpr int halves_of_tile = 2 * d_q_parts;

    __device__ __forceinline__ int warp() const { return thread_ / warp_size; }
    __device__ __forceinline__ int lane() const { return thread_ % warp_size; }
    __device__ __forceinline__ bool leads() const { return thread_ == 0; }

    __device__ __forceinline__ void synchronise() const {
        named_barrier_synchronise(conversion_warps_own, conversion_threads);
    }

    /// What takes the place of converted halves, piece by piece.
    __device__ __forceinline__ void store_zeros() const {
        if (thread_ < zeros_bytes / 16) {
            store_shared(shared_.zeros() + thread_ * 16, float4{0, 0, 0, 0});
        }
        fence_shared_before_async_proxy();
        synchronise();
    }

    /// By the leading thread.
    __device__ __forceinline__ void load(const float* half, int buffer) const {
        mbarrier_arrive_expect_bytes(shared_.conversion_full(buffer), conversion_buffer_bytes);
        bulk_load(shared_.unconverted(buffer), half, conversion_buffer_bytes,
                  shared_.conversion_full(buffer));
    }

    /// By the leading thread, where a half has been loaded from.
    __device__ __forceinline__ void zero(float* half) const {
#pragma unroll
        for (int i = 0; i < half_elements; i += zeros_bytes / 4) {
            bulk_store(half + i, shared_.zeros(), zeros_bytes);
        }
        bulk_commit();
    }

    /// The part that has been converted, from that row and column of a head's dQ on.
    __device__ __forceinline__ void store(int column, int row, int batch_head, int heads) const {
        tma_store_4d(&arguments_.d_q, column, row, batch_head % heads, batch_head / heads,
                     shared_.converted());
    }
    /// The same of a packed sequence's head.
    __device__ __forceinline__ void store_packed(int column, const HeldConversion& conversion,
                                                 int tile) const {
        const int query_tiles = query_tiles_of(arguments_, conversion);
        const int head = conversion.head * heads_per_kv_head_of(arguments_) +
                         (grouped_heads ? tile / query_tiles : 0);
        tma_store_4d(&map_of(arguments_, arguments_.d_q, packed_d_q,
                             conversion.batch_head / arguments_.heads),
                     column, (grouped_heads ? tile % query_tiles : tile) * block_q, head, 0,
                     shared_.converted());
    }

    __device__ __forceinline__ static HeldConversion with_rows(const HeldConversion& conversion) {
        HeldConversion result = conversion;
        if constexpr (packed) {
            const uint4 rows = load_shared<uint4>(place_of(conversion));
            result.first_row = static_cast<int>(rows.x);
            result.q_begin = static_cast<int>(rows.y);
            result.head = static_cast<int>(rows.z);
            result.key_tiles = static_cast<int>(rows.w);
        }
        return result;
    }

    __device__ __forceinline__ void wait_until_added(const HeldConversion& conversion) const {
        if constexpr (packed) {
            wait_for_global_counter<256>(arguments_.counters.added + conversion.batch_head,
                                         static_cast<uint32_t>(conversion.key_tiles));
        } else {
            kernel::wait_until_added(arguments_, conversion.batch_head);
        }
    }

    __device__ __forceinline__ void convert(const HeldConversion& conversion) {
        float* half = accumulator_of(arguments_, conversion) +
                      static_cast<int64_t>(conversion.first_query_tile) * (block_q * head_dim);
        const int query_tiles_end = conversion.first_query_tile + conversion.query_tiles;
        int halves_left = conversion.query_tiles * halves_of_tile;
        const bool leaves_zeros = !packed && place_has_next(arguments_, conversion.batch_head);
        if (leads()) {
            if constexpr (packed && !fp32_gradients) {
                acquire_tensor_map(&map_of(arguments_, arguments_.d_q, packed_d_q,
                                           conversion.batch_head / arguments_.heads));
            }
            wait_until_added(conversion);
            fence_global_before_async_proxy();
            for (int i = 0; i < conversion_buffers && i < halves_left; ++i) {
                load(half + i * half_elements, (ring_.slot() + i) % conversion_buffers);
            }
        }
        for (; halves_left > 0; --halves_left, half += half_elements) {
            const bool first_of_part = halves_left % 2 == 0;
            if (!fp32_gradients && first_of_part) {
                if (leads()) {
                    bulk_wait_read<0>();  // the part before has left
                }
                synchronise();
            }
            mbarrier_wait(shared_.conversion_full(ring_.slot()), ring_.parity());
            if (leads() && leaves_zeros) {
                zero(half);
            }
            if constexpr (fp32_gradients) {
                store_half(conversion, query_tiles_end, halves_left);
            } else {
                convert_half(first_of_part ? 0 : 1);
            }
            fence_shared_before_async_proxy();
            synchronise();
            if (leads()) {
                if (halves_left > conversion_buffers) {
                    load(half + conversion_buffers * half_elements, ring_.slot());
                }
                if (!fp32_gradients && !first_of_part) {
                    // The last parts of a tile have the last columns.
                    const int parts_left_of_tile = halves_left / 2 % d_q_parts;
                    const int tiles_left = halves_left / halves_of_tile + 1;
                    const int column = (d_q_parts - 1 - parts_left_of_tile) * d_q_part_columns;
                    const int tile_now = query_tiles_end - tiles_left;
                    if constexpr (packed) {
                        store_packed(column, conversion, tile_now);
                    } else if constexpr (grouped_heads) {
                        // Counted through all heads of a head of keys.
                        const int query_tiles = query_tiles_of(arguments_);
                        store(column, tile_now % query_tiles * block_q,
                              conversion.batch_head * heads_per_kv_head_of(arguments_) +
                                  tile_now / query_tiles,
                              arguments_.heads * heads_per_kv_head_of(arguments_));
                    } else {
                        store(column, tile_now * block_q, conversion.batch_head, arguments_.heads);
                    }
                    bulk_commit();
                }
            }
            ring_.advance();
        }
        if (leads() && leaves_zeros) {
            bulk_wait<0>();
            count_global(arguments_.counters.converted + conversion.batch_head);
        }
    }

    /// Of the half in the ring's current buffer.
    __device__ __forceinline__ void convert_half(int half) {
        const SwizzledTile<block_q, d_q_part_columns> rows{shared_.converted()};
        const float scale = arguments_.softmax_scale;
        // A fragment: 16 rows, those of one warp of the query warpgroup, by 16 columns.
        constexpr int fragments = block_q / 16 * (half_columns / 16);
#pragma unroll 1
        for (int fragment = warp(); fragment < fragments;
             fragment += conversion_threads / warp_size) {
            const int row = fragment % (block_q / 16) * 16;
            const int column = fragment / (block_q / 16) * 16;
            const uint32_t place = shared_.unconverted(ring_.slot()) +
                                   column / 8 * (warpgroup_size * 16) + (row * 2 + lane()) * 16;
            const float4 left = load_shared<float4>(place);
            const float4 right = load_shared<float4>(place + warpgroup_size * 16);
            const OperandRegister packed[4] = {pack<Element>(left.x * scale, left.y * scale),
                                               pack<Element>(left.z * scale, left.w * scale),
                                               pack<Element>(right.x * scale, right.y * scale),
                                               pack<Element>(right.z * scale, right.w * scale)};
            stmatrix_x4(
                rows.address(row + lane() % 16, half * half_columns + column + lane() / 16 * 8),
                packed);
        }
    }

    /// Of the half in the ring's current buffer, without a way through shared memory.
    __device__ __forceinline__ void store_half(const HeldConversion& conversion,
                                               int query_tiles_end, int halves_left) const {
        const int tiles_left = (halves_left - 1) / halves_of_tile + 1;
        const int tile = query_tiles_end - tiles_left;
        const int first_column =
            (halves_of_tile - 1 - (halves_left - 1) % halves_of_tile) * half_columns;
        const int query_tiles = query_tiles_of(arguments_, conversion);
        const int head =
            conversion.batch_head % arguments_.heads * heads_per_kv_head_of(arguments_) +
            (grouped_heads ? tile / query_tiles : 0);
        const int seqlen_q = packed ? conversion.seqlen_q : seqlen_q_of(arguments_);
        const int first_row = (grouped_heads ? tile % query_tiles : tile) * block_q;
        const Strides& strides = arguments_.d_q_strides;
        Gradient* const d_q = static_cast<Gradient*>(arguments_.d_q_data) +
                              (packed ? conversion.q_begin * strides.seqlen
                                      : conversion.batch_head / arguments_.heads * strides.batch) +
                              head * strides.head + first_row * strides.seqlen + first_column;
        const float scale = arguments_.softmax_scale;
        // As they lie: of each eight columns, the four numbers of every thread of the query
        // warpgroup.
#pragma unroll 1
        for (int place = thread_; place < half_columns / 8 * warpgroup_size;
             place += conversion_threads) {
            const float4 numbers =
                load_shared<float4>(shared_.unconverted(ring_.slot()) + place * 16);
            const int row = place % warpgroup_size / 32 * 16 + place % 32 / 4;
            const int column = place / warpgroup_size * 8 + place % 4 * 2;
            if (columns_qk < head_dim && first_column + column >= columns_qk) {
                continue;
            }
            Gradient* const to = d_q + row * strides.seqlen + column;
            float2 upper{numbers.x, numbers.y};
            float2 lower{numbers.z, numbers.w};
            const bool has_upper = !partial_query_tiles || first_row + row < seqlen_q;
            const bool has_lower = !partial_query_tiles || first_row + row + 8 < seqlen_q;
            if constexpr (specialisation::accumulates_gradients) {
                if (has_upper) {
                    upper = added_two(to, upper.x, upper.y, scale);
                }
                if (has_lower) {
                    lower = added_two(to + 8 * strides.seqlen, lower.x, lower.y, scale);
                }
            }
            if (has_upper) {
                store_two(to, upper.x * scale_at_store(scale), upper.y * scale_at_store(scale));
            }
            if (has_lower) {
                store_two(to + 8 * strides.seqlen, lower.x * scale_at_store(scale),
                          lower.y * scale_at_store(scale));
            }
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int thread_;
    CompactRingPosition<conversion_buffers> ring_;
};

}  // namespace backlight::kernel
