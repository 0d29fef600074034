// The products of the register-resident mma kernels, and how their operands come from shared
// memory.
#pragma once

#include "attention_backward_mma_resident/constants.cuh"
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

constexpr int query_slices = block_q / mma_k;     // of dV and dK
constexpr int key_slices = block_kv / mma_k;      // of dQ
constexpr int score_fragments = block_q / mma_n;  // Sᵀ, dPᵀ: 16 × block_q a warp

using ScoreAccumulator = AccumulatorRegister[score_fragments][4];
/// P or dS as A operands: [slice of 16 queries].
using ScoreOperands = OperandRegister[query_slices][4];

/// Of a tile's columns, or of a product over them.
template <typename Tile>
constexpr int slices_of = Tile::panels* Tile::panel_columns / mma_k;

/// One slice of Sᵀ or dPᵀ: A, 16 keys, with all queries of the tile at `b_address`. `idle`, here
/// and below, is for measuring alone: sums that these products leave at rest.
template <typename QueryTile, int fragments>
__device__ __forceinline__ void multiply_by_queries(ScoreAccumulator& product,
                                                    const OperandRegister (&a)[4],
                                                    uint32_t b_address, int slice,
                                                    AccumulatorRegister (&idle)[fragments][4]) {
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
template <typename KTile, typename QTile, int fragments>
__device__ __forceinline__ void multiply_k_by_queries(ScoreAccumulator& scores, uint32_t k_address,
                                                      uint32_t q_address,
                                                      AccumulatorRegister (&idle)[fragments][4]) {
#pragma unroll
    for (int slice = 0; slice < slices_of<KTile>; ++slice) {
        OperandRegister k[4];
        ldmatrix_x4(k, KTile::moved(k_address, 0, slice * mma_k));
        multiply_by_queries<QTile>(scores, k, q_address, slice, idle);
    }
}

/// dPᵀ = V dOᵀ.
template <typename DOTile, int slices, int fragments>
__device__ __forceinline__ void multiply_v_by_queries(ScoreAccumulator& d_p,
                                                      const OperandRegister (&v)[slices][4],
                                                      uint32_t d_o_address,
                                                      AccumulatorRegister (&idle)[fragments][4]) {
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
        multiply_by_queries<DOTile>(d_p, v[slice], d_o_address, slice, idle);
    }
}

/// gradient += A · B over the queries of the tile, or some slices of them: Pᵀ with dO, or dSᵀ with
/// Q.
template <typename QueryTile, int first_slice = 0, int end_slice = query_slices, int fragments>
__device__ __forceinline__ void multiply_by_operands(AccumulatorRegister (&gradient)[fragments][4],
                                                     const ScoreOperands& a, uint32_t b_address) {
#pragma unroll
    for (int slice = first_slice; slice < end_slice; ++slice) {
#pragma unroll
        for (int quad = 0; quad < fragments / 4; ++quad) {
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

/// dQ = dS K over the block's first keys, so many slices of them, of the warp's part of the result:
/// pairs of fragments that are so many columns apart.
template <typename ScoreTile, typename KTile, int slices, int pair_columns, int rows, int columns>
__device__ __forceinline__ void multiply_d_s_by_k(AccumulatorRegister (&d_q)[rows][columns][4],
                                                  uint32_t d_s_address, uint32_t k_address) {
#pragma unroll
    for (int slice = 0; slice < slices; ++slice) {
        OperandRegister d_s[rows][4];
        OperandRegister k[columns / 2][4];
#pragma unroll
        for (int row = 0; row < rows; ++row) {
            ldmatrix_x4_transposed(d_s[row],
                                   ScoreTile::moved(d_s_address, slice * mma_k, row * mma_m));
        }
#pragma unroll
        for (int pair = 0; pair < columns / 2; ++pair) {
            ldmatrix_x4_transposed(k[pair],
                                   KTile::moved(k_address, slice * mma_k, pair * pair_columns));
        }
#pragma unroll
        for (int row = 0; row < rows; ++row) {
#pragma unroll
            for (int pair = 0; pair < columns / 2; ++pair) {
                mma_m16n8k16<Element>(d_q[row][2 * pair], d_s[row], k[pair][0], k[pair][1]);
                mma_m16n8k16<Element>(d_q[row][2 * pair + 1], d_s[row], k[pair][2], k[pair][3]);
            }
        }
#pragma unroll
        for (int repeat = 1; repeat < specialisation::mma_repeats; ++repeat) {
#pragma unroll
            for (int row = 0; row < rows; ++row) {
#pragma unroll
                for (int column = 0; column < columns; ++column) {
                    multiply_by_zeros(d_q[row][column], d_s[row]);
                }
            }
        }
    }
}

}  // namespace backlight::kernel
