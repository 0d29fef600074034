// The conversion of dQ to its own type, by the loader warpgroup's other warps.
#pragma once

#include "arguments/attention_backward.h"
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
/// have all been worked on. Three warps that have nothing else to do. A part comes in two halves of
/// 32 columns, as they lie, the next ones on their way meanwhile, and leaves as rows. Zeros take
/// its place where another head's dQ will lie there.
class Converter {
  public:
    __device__ __forceinline__ Converter(const WgmmaArguments& arguments, SharedMemory shared,
                                         int thread)
        : arguments_(arguments), shared_(shared), thread_(thread) {}

    __device__ __forceinline__ void work() {
        store_zeros();
        PostedWork posted(shared_);
        for (Work work = posted.next(lane()); !work.is_end(); work = posted.next(lane())) {
            if (work.has_conversion()) {
                convert(work.conversion);
            }
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

    __device__ __forceinline__ void convert(const Conversion& conversion) {
        float* half = accumulator_place(arguments_, conversion.batch_head) +
                      static_cast<int64_t>(conversion.first_query_tile) * (block_q * head_dim);
        const int query_tiles_end = conversion.first_query_tile + conversion.query_tiles;
        int halves_left = conversion.query_tiles * halves_of_tile;
        const bool leaves_zeros = place_has_next(arguments_, conversion.batch_head);
        if (leads()) {
            wait_until_added(arguments_, conversion.batch_head);
            fence_global_before_async_proxy();
            for (int i = 0; i < conversion_buffers && i < halves_left; ++i) {
                load(half + i * half_elements, (ring_.slot() + i) % conversion_buffers);
            }
        }
        for (; halves_left > 0; --halves_left, half += half_elements) {
            const bool first_of_part = halves_left % 2 == 0;
            if (first_of_part) {
                if (leads()) {
                    bulk_wait_read<0>();  // the part before has left
                }
                synchronise();
            }
            mbarrier_wait(shared_.conversion_full(ring_.slot()), ring_.parity());
            if (leads() && leaves_zeros) {
                zero(half);
            }
            convert_half(first_of_part ? 0 : 1);
            fence_shared_before_async_proxy();
            synchronise();
            if (leads()) {
                if (halves_left > conversion_buffers) {
                    load(half + conversion_buffers * half_elements, ring_.slot());
                }
                if (!first_of_part) {
                    // The last parts of a tile have the last columns.
                    const int parts_left_of_tile = halves_left / 2 % d_q_parts;
                    const int tiles_left = halves_left / halves_of_tile + 1;
                    tma_store_4d(&arguments_.d_q,
                                 (d_q_parts - 1 - parts_left_of_tile) * d_q_part_columns,
                                 (query_tiles_end - tiles_left) * block_q,
                                 conversion.batch_head % arguments_.heads,
                                 conversion.batch_head / arguments_.heads, shared_.converted());
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

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int thread_;
    CompactRingPosition<conversion_buffers> ring_;
};

}  // namespace backlight::kernel
