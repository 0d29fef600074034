// From scores to P and dS: what a thread of the register-resident mma kernels does with the 16 keys
// of its warp and the queries of a tile.
#pragma once

#include "attention_backward_mma_resident/fragments.cuh"
#include "primitives/conversion.cuh"
#include "primitives/exponential.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// Of the 16 queries of a slice those four that the thread holds scores of. They lie next to each
/// other (see the delta kernel).
__device__ __forceinline__ float4 statistics(uint32_t address, int slice, int lane) {
    return load_shared<float4>(address + slice * 64 + lane % 4 * 16);
}

/// P = exp2(scale · log2(e) · S − LSE · log2(e)), in place, and as operands; 0 where `hidden` says
/// that there is no score.
template <typename Hidden>
__device__ __forceinline__ void exponentiate_scores(ScoreAccumulator& scores, ScoreOperands& p,
                                                    float scale, uint32_t lse_address, int lane,
                                                    const Hidden& hidden) {
#pragma unroll
    for (int slice = 0; slice < query_slices; ++slice) {
        const float4 negated_lse = statistics(lse_address, slice, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int fragment = 2 * slice + half;
            const float even = half == 0 ? negated_lse.x : negated_lse.z;
            const float odd = half == 0 ? negated_lse.y : negated_lse.w;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float exponent = __fmaf_rn(scores[fragment][i], scale, i % 2 == 0 ? even : odd);
                if (hidden.hides(fragment, i)) {
                    exponent = -infinity();
                }
                scores[fragment][i] = exp2_approximate(exponent);
            }
            p[slice][2 * half] = pack<Element>(scores[fragment][0], scores[fragment][1]);
            p[slice][2 * half + 1] = pack<Element>(scores[fragment][2], scores[fragment][3]);
        }
    }
}

/// dSᵀ = P ∘ (dPᵀ − delta), as operands.
__device__ __forceinline__ void differentiate(const ScoreAccumulator& p,
                                              const ScoreAccumulator& d_p, ScoreOperands& d_s,
                                              uint32_t delta_address, int lane) {
#pragma unroll
    for (int slice = 0; slice < query_slices; ++slice) {
        const float4 negated_delta = statistics(delta_address, slice, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int fragment = 2 * slice + half;
            const float even = half == 0 ? negated_delta.x : negated_delta.z;
            const float odd = half == 0 ? negated_delta.y : negated_delta.w;
#pragma unroll
            for (int row = 0; row < 2; ++row) {
                d_s[slice][2 * half + row] =
                    pack<Element>(p[fragment][2 * row] * (d_p[fragment][2 * row] + even),
                                  p[fragment][2 * row + 1] * (d_p[fragment][2 * row + 1] + odd));
            }
        }
    }
}

/// dSᵀ to its tile, from the warp's first key on.
template <typename ScoreTile>
__device__ __forceinline__ void store_scores(const ScoreOperands& d_s, uint32_t address) {
#pragma unroll
    for (int slice = 0; slice < query_slices; ++slice) {
        stmatrix_x4(ScoreTile::moved(address, 0, slice * mma_k), d_s[slice]);
    }
}

}  // namespace backlight::kernel
