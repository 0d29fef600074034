// The products of the register-resident mma kernel, and how their operands come from shared memory.
#pragma once

#include "attention_backward_mma_resident/layout.cuh"
#include "mma_repeats.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/mma.cuh"

namespace backlight::kernel {

// ldmatrix reads a 16×16 block of a tile in two ways. Each lane starts from the address of its own
// 16-byte row in the first block; the tile's other blocks are moves away from it.

/// An A operand stored as it is used; transposed, two B operands whose rows are the block's.
template <typename Tile>
__device__ __forceinline__ uint32_t rows_first(Tile tile, int row, int column, int lane) {
    return tile.address(row + lane % 16, column + lane / 16 * 8);
}

/// Two B operands whose columns are the block's rows; transposed, an A operand whose rows are its
/// columns.
template <typename Tile>
__device__ __forceinline__ uint32_t columns_first(Tile tile, int row, int column, int lane) {
    return tile.address(row + lane % 8 + lane / 16 * 8, column + lane / 8 % 2 * 8);
}

using ScoreAccumulator = AccumulatorRegister[score_fragments][4];
using GradientAccumulator = AccumulatorRegister[gradient_fragments][4];
/// P or dS as A operands: [slice of 16 queries].
using ScoreOperands = OperandRegister[query_slices][4];
using VOperands = OperandRegister[depth_slices][4];

/// One slice of Sᵀ or dPᵀ: A, 16 keys, with all queries of the tile at `b_address`. `idle`, here
/// and below, is for measuring alone: sums that these products leave at rest.
__device__ __forceinline__ void multiply_by_queries(ScoreAccumulator& product,
                                                    const OperandRegister (&a)[4],
                                                    uint32_t b_address, int slice,
                                                    GradientAccumulator& idle) {
    OperandRegister b[query_slices][4];
#pragma unroll
    for (int pair = 0; pair < query_slices; ++pair) {
        ldmatrix_x4(b[pair], QueryTile::moved(b_address, pair * 16, slice * mma_k));
    }
#pragma unroll
    for (int pair = 0; pair < query_slices; ++pair) {
        mma_m16n8k16<Element>(product[2 * pair], a, b[pair][0], b[pair][1]);
        mma_m16n8k16<Element>(product[2 * pair + 1], a, b[pair][2], b[pair][3]);
    }
    repeat_products<score_fragments>(idle, a);
}

/// Sᵀ = K Qᵀ, of the warp's keys. K is read again for each tile: V fills what registers there are.
__device__ __forceinline__ void multiply_k_by_queries(ScoreAccumulator& scores, uint32_t k_address,
                                                      uint32_t q_address,
                                                      GradientAccumulator& idle) {
#pragma unroll
    for (int slice = 0; slice < depth_slices; ++slice) {
        OperandRegister k[4];
        ldmatrix_x4(k, KvTile::moved(k_address, 0, slice * mma_k));
        multiply_by_queries(scores, k, q_address, slice, idle);
    }
}

/// dPᵀ = V dOᵀ.
__device__ __forceinline__ void multiply_v_by_queries(ScoreAccumulator& d_p, const VOperands& v,
                                                      uint32_t d_o_address,
                                                      GradientAccumulator& idle) {
#pragma unroll
    for (int slice = 0; slice < depth_slices; ++slice) {
        multiply_by_queries(d_p, v[slice], d_o_address, slice, idle);
    }
}

/// gradient += A · B over the queries of the tile: Pᵀ with dO, or dSᵀ with Q.
__device__ __forceinline__ void multiply_by_operands(GradientAccumulator& gradient,
                                                     const ScoreOperands& a, uint32_t b_address) {
#pragma unroll
    for (int slice = 0; slice < query_slices; ++slice) {
#pragma unroll
        for (int quad = 0; quad < gradient_fragments / 4; ++quad) {
            OperandRegister b[2][4];
            ldmatrix_x4_transposed(b[0], QueryTile::moved(b_address, slice * mma_k, quad * 32));
            ldmatrix_x4_transposed(b[1],
                                   QueryTile::moved(b_address, slice * mma_k, quad * 32 + 16));
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                AccumulatorRegister(&left)[4] = gradient[4 * quad + 2 * pair];
                AccumulatorRegister(&right)[4] = gradient[4 * quad + 2 * pair + 1];
                mma_m16n8k16<Element>(left, a[slice], b[pair][0], b[pair][1]);
                mma_m16n8k16<Element>(right, a[slice], b[pair][2], b[pair][3]);
            }
            repeat_products<4>(gradient, a[slice], 4 * quad + 4);
        }
    }
}

using DqAccumulator = AccumulatorRegister[d_q_row_fragments][d_q_column_fragments][4];

/// dQ = dS K over the block's first keys, so many slices of them, of the warp's part of the result.
template <int slices>
__device__ __forceinline__ void multiply_d_s_by_k(DqAccumulator& d_q, uint32_t d_s_address,
                                                  uint32_t k_address) {
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
        OperandRegister d_s[d_q_row_fragments][4];
        OperandRegister k[d_q_column_fragments / 2][4];
#pragma unroll
        for (int row = 0; row < d_q_row_fragments; ++row) {
            ldmatrix_x4_transposed(d_s[row],
                                   ScoreTile::moved(d_s_address, slice * mma_k, row * mma_m));
        }
#pragma unroll
        for (int pair = 0; pair < d_q_column_fragments / 2; ++pair) {
            ldmatrix_x4_transposed(k[pair], KvTile::moved(k_address, slice * mma_k, pair * 16));
        }
#pragma unroll
        for (int row = 0; row < d_q_row_fragments; ++row) {
#pragma unroll
            for (int pair = 0; pair < d_q_column_fragments / 2; ++pair) {
                mma_m16n8k16<Element>(d_q[row][2 * pair], d_s[row], k[pair][0], k[pair][1]);
                mma_m16n8k16<Element>(d_q[row][2 * pair + 1], d_s[row], k[pair][2], k[pair][3]);
            }
        }
#pragma unroll
        for (int repeat = 1; repeat < specialisation::mma_repeats; ++repeat) {
#pragma unroll
            for (int row = 0; row < d_q_row_fragments; ++row) {
#pragma unroll
                for (int column = 0; column < d_q_column_fragments; ++column) {
                    multiply_by_zeros(d_q[row][column], d_s[row]);
                }
            }
        }
    }
}

}  // namespace backlight::kernel
