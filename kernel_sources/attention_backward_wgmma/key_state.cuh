// What a thread of a key warpgroup of the wgmma kernel holds in registers.
#pragma once

#include "attention_backward_wgmma/layout.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// What a thread needs of the statistics of a query tile: of each group of 16 queries those four
/// that it holds scores of. They lie next to each other (see the delta kernel).
struct TileStatistics {
    float4 values[query_slices];

    __device__ __forceinline__ void load(uint32_t statistics, int lane) {
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            values[slice] = load_shared<float4>(statistics + slice * 64 + lane % 4 * 16);
        }
    }

    /// Of register `i` of an accumulator.
    __device__ __forceinline__ float of(int i) const {
        const float4 value = values[i / 8];
        return (i & 4) != 0 ? ((i & 1) != 0 ? value.w : value.z)
                            : ((i & 1) != 0 ? value.y : value.x);
    }
};

/// Everything that a thread of a key warpgroup carries from step to step.
struct KeyState {
    AccumulatorRegister d_k[gradient_registers];
    AccumulatorRegister d_v[gradient_registers];
    // Sᵀ, then P; and dPᵀ, in the same registers where P is not kept.
    AccumulatorRegister scores[p_unrounded ? 2 : 1][score_registers];
    // P, and after dV dSᵀ, as operands of 16 queries a slice.
    OperandRegister p[query_slices][4];
    OperandRegister k[k_resident ? depth_slices : 1][4];
    OperandRegister v[v_resident ? depth_slices : 1][4];

    __device__ __forceinline__ AccumulatorRegister (&d_p())[score_registers] {
        return scores[p_unrounded ? 1 : 0];
    }
};

}  // namespace backlight::kernel
