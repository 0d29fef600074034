// The conversion of dQ to its own type, by the loader warpgroup's other warps.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_wgmma/layout.cuh"
#include "attention_backward_wgmma/loader.cuh"
#include "attention_backward_wgmma/work.cuh"
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
/// 32 columns, as they lie, the next halves on their way meanwhile, and leaves as rows. Zeros take
/// its place where another head's dQ will lie there.
class Converter {
  public:
    __device__ __forceinline__ Converter(const WgmmaArguments& arguments, SharedMemory shared,
                                         int thread)
        : arguments_(arguments),
          shared_(shared),
          warp_(thread / warp_size),
          lane_(thread % warp_size) {}

    __device__ __forceinline__ void work() {
        store_zeros();
        PostedWork posted(shared_);
        for (Work work = posted.next(lane_); !work.is_end(); work = posted.next(lane_)) {
            if (work.has_conversion()) {
                convert(work.conversion);
            }
        }
        if (leads()) {
            bulk_wait<0>();
        }
    }

  private:
    static constexpr int half_bytes = d_q_part_bytes / 2;
    static constexpr int half_columns = d_q_part_columns / 2;

    __device__ __forceinline__ bool leads() const { return warp_ == 0 && lane_ == 0; }

    __device__ __forceinline__ void synchronise() const {
        named_barrier_synchronise(conversion_warps_own, conversion_threads);
    }

    /// By the leading thread.
    __device__ __forceinline__ void load(const float* source, int half) {
        const int buffer = half % 2;
        mbarrier_arrive_expect_bytes(shared_.conversion_full(buffer), half_bytes);
        bulk_load(shared_.unconverted() + buffer * half_bytes, source + half * (half_bytes / 4),
                  half_bytes, shared_.conversion_full(buffer));
    }

    /// What takes the place of converted halves.
    __device__ __forceinline__ void store_zeros() const {
        for (int i = warp_ * warp_size + lane_; i < half_bytes / 16; i += conversion_threads) {
            store_shared(shared_.zeros() + i * 16, float4{0, 0, 0, 0});
        }
        fence_shared_before_async_proxy();
        synchronise();
    }

    __device__ __forceinline__ void convert(const Conversion& conversion) {
        float* const source =
            accumulator_place(arguments_, conversion.batch_head) +
            static_cast<int64_t>(conversion.first_query_tile) * (block_q * head_dim);
        const int halves = conversion.query_tiles * d_q_parts * 2;
        const bool place_has_next =
            conversion.batch_head + places_of(arguments_) < arguments_.batch_heads;
        if (leads()) {
            wait_for_global_counter<256>(arguments_.counters.added + conversion.batch_head,
                                         static_cast<uint32_t>(kv_tiles_of(arguments_)));
            fence_global_before_async_proxy();
            for (int half = 0; half < 2 && half < halves; ++half) {
                load(source, half);
            }
        }
        for (int half = 0; half < halves; ++half) {
            if (half % 2 == 0) {
                if (leads()) {
                    bulk_wait_read<0>();  // the part before has left
                }
                synchronise();
            }
            mbarrier_wait(shared_.conversion_full(half % 2), parity_);
            if (leads() && place_has_next) {
                bulk_store(source + half * (half_bytes / 4), shared_.zeros(), half_bytes);
                bulk_commit();
            }
            convert_half(half % 2);
            fence_shared_before_async_proxy();
            synchronise();
            if (half % 2 == 1) {
                parity_ ^= 1;
            }
            if (leads()) {
                if (half + 2 < halves) {
                    load(source, half + 2);
                }
                if (half % 2 == 1) {
                    const int part = half / 2;
                    tma_store_4d(&arguments_.d_q, part % d_q_parts * d_q_part_columns,
                                 (conversion.first_query_tile + part / d_q_parts) * block_q,
                                 conversion.batch_head % arguments_.heads,
                                 conversion.batch_head / arguments_.heads, shared_.converted());
                    bulk_commit();
                }
            }
        }
        if (leads() && place_has_next) {
            bulk_wait<0>();
            count_global(arguments_.counters.converted + conversion.batch_head);
        }
    }

    __device__ __forceinline__ void convert_half(int half) {
        const SwizzledTile<block_q, d_q_part_columns> rows{shared_.converted()};
        const float scale = arguments_.softmax_scale;
        // A fragment: 16 rows, those of one warp of the query warpgroup, by 16 columns.
        constexpr int fragments = block_q / 16 * (half_columns / 16);
#pragma unroll 1
        for (int fragment = warp_; fragment < fragments;
             fragment += conversion_threads / warp_size) {
            const int row = fragment % (block_q / 16) * 16;
            const int column = fragment / (block_q / 16) * 16;
            const uint32_t place = shared_.unconverted() + half * half_bytes +
                                   column / 8 * (warpgroup_size * 16) + (row * 2 + lane_) * 16;
            const float4 left = load_shared<float4>(place);
            const float4 right = load_shared<float4>(place + warpgroup_size * 16);
            const OperandRegister packed[4] = {pack<Element>(left.x * scale, left.y * scale),
                                               pack<Element>(left.z * scale, left.w * scale),
                                               pack<Element>(right.x * scale, right.y * scale),
                                               pack<Element>(right.z * scale, right.w * scale)};
            stmatrix_x4(
                rows.address(row + lane_ % 16, half * half_columns + column + lane_ / 16 * 8),
                packed);
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int warp_;
    int lane_;
    int parity_ = 0;
};

}  // namespace backlight::kernel
