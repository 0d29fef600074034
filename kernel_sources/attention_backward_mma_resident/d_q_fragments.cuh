// The dQ accumulator of the register-resident mma kernel, and its conversion to dQ's own type.
//
// It holds what the warps add as they hold it: the 16×8 fragments of mma (see mma.cuh), those of
// the same 16 rows one after another, and in each the four numbers of every lane. Rows are padded
// to a multiple of 16.
#pragma once

#include "attention_backward_rounds/gradient_stores.cuh"
#include "primitives/mma.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"

namespace backlight::kernel {

constexpr int fragment_elements = mma_m * mma_n;

/// What a thread converts at a time: what four neighbouring lanes hold of a fragment, eight
/// elements of each of two rows, 64 bytes in and twice 16 out.
struct FragmentPiece {
    float4 lanes[4];

    __device__ __forceinline__ void load(const float* accumulator) {
        const float4* const source = reinterpret_cast<const float4*>(accumulator);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            lanes[i] = source[i];
        }
    }

    /// Where dQ is added to: lanes = dQ + scale · lanes, of what `store` stores.
    template <typename Gradient>
    __device__ __forceinline__ void add(const Gradient* d_q, int64_t stride, float scale,
                                        int64_t rows) {
        const auto quad = [&](int row, int half) {
            return *reinterpret_cast<const float4*>(d_q + row * stride + half * 4);
        };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float4& left = lanes[half * 2];
            float4& right = lanes[half * 2 + 1];
            if (rows > 0) {
                const float4 held = quad(0, half);
                left.x = added(held.x, left.x, scale);
                left.y = added(held.y, left.y, scale);
                right.x = added(held.z, right.x, scale);
                right.y = added(held.w, right.y, scale);
            }
            if (rows > 8) {
                const float4 held = quad(8, half);
                left.z = added(held.x, left.z, scale);
                left.w = added(held.y, left.w, scale);
                right.z = added(held.z, right.z, scale);
                right.w = added(held.w, right.w, scale);
            }
        }
    }

    /// dQ = scale · accumulator, from the piece's first element on; rows are `stride` apart, and
    /// those of the first `rows` exist.
    template <typename Gradient>
    __device__ __forceinline__ void store(Gradient* d_q, int64_t stride, float scale,
                                          int64_t rows) const {
        if (rows > 0) {
            store_eight(d_q, float2{lanes[0].x, lanes[0].y}, float2{lanes[1].x, lanes[1].y},
                        float2{lanes[2].x, lanes[2].y}, float2{lanes[3].x, lanes[3].y}, scale);
        }
        if (rows > 8) {
            store_eight(d_q + 8 * stride, float2{lanes[0].z, lanes[0].w},
                        float2{lanes[1].z, lanes[1].w}, float2{lanes[2].z, lanes[2].w},
                        float2{lanes[3].z, lanes[3].w}, scale);
        }
    }
};

/// Leaves zeros where a piece has been loaded.
__device__ __forceinline__ void zero_piece(float* accumulator) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        reinterpret_cast<float4*>(accumulator)[i] = float4{0, 0, 0, 0};
    }
}

/// How threads share rows: a warp takes four whole fragments, and so stores pieces of 64 bytes.
template <int head_dim, int threads>
struct FragmentRows {
    static constexpr int fragments_a_warp = 4;
    static constexpr int warps_across = head_dim / (mma_n * fragments_a_warp);
    static constexpr int rows_a_step = threads / warp_size / warps_across * mma_m;
    static_assert(rows_a_step > 0, "the warps reach across a row");

    int first_row;  // of the warp's fragments, in a step
    int fragment;
    int row_in_fragment;

    __device__ __forceinline__ explicit FragmentRows(int thread)
        : first_row(thread / warp_size / warps_across * mma_m),
          fragment(thread / warp_size % warps_across * fragments_a_warp +
                   thread % fragments_a_warp),
          row_in_fragment(thread % warp_size / fragments_a_warp) {}

    /// Where the thread's piece lies, of fragments whose first row is `row`.
    template <typename Float>
    __device__ __forceinline__ Float* source(Float* accumulator, int64_t row) const {
        return accumulator + row * head_dim + fragment * fragment_elements +
               row_in_fragment * mma_m;
    }
    template <typename Gradient>
    __device__ __forceinline__ Gradient* destination(Gradient* d_q, int64_t row,
                                                     int64_t stride) const {
        return d_q + (row + row_in_fragment) * stride + fragment * mma_n;
    }
    /// Rows that exist from the piece's first on, of fragments whose first row is `row`; none where
    /// its columns do not.
    __device__ __forceinline__ int64_t rows_from(int64_t row, int64_t seqlen_q) const {
        if (columns_qk < head_dim && fragment * mma_n >= columns_qk) {
            return 0;
        }
        return specialisation::partial_query_tiles ? seqlen_q - row - row_in_fragment : mma_m;
    }
};

}  // namespace backlight::kernel
