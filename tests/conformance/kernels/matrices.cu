// ldmatrix, stmatrix and mma.sync: where each element of a matrix goes.
#include "arguments/attention_backward.h"
#include "primitives/ldmatrix.cuh"
#include "primitives/mma.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using Element = specialisation::Element;

constexpr int row_bytes = 16;

/// Loads the matrices' rows that the lanes name; registers that no matrix fills stay as they are.
__device__ __forceinline__ void load(OperandRegister (&fragment)[4], uint32_t address, int matrices,
                                     bool transposed) {
    OperandRegister one[1];
    OperandRegister two[2];
    if (matrices == 1) {
        if (transposed) {
            ldmatrix_x1_transposed(one, address);
        } else {
            ldmatrix_x1(one, address);
        }
        fragment[0] = one[0];
    } else if (matrices == 2) {
        if (transposed) {
            ldmatrix_x2_transposed(two, address);
        } else {
            ldmatrix_x2(two, address);
        }
        fragment[0] = two[0];
        fragment[1] = two[1];
    } else if (transposed) {
        ldmatrix_x4_transposed(fragment, address);
    } else {
        ldmatrix_x4(fragment, address);
    }
}

__device__ __forceinline__ void store(uint32_t address, const OperandRegister (&fragment)[4],
                                      int matrices, bool transposed) {
    const OperandRegister one[1] = {fragment[0]};
    const OperandRegister two[2] = {fragment[0], fragment[1]};
    if (matrices == 1) {
        if (transposed) {
            stmatrix_x1_transposed(address, one);
        } else {
            stmatrix_x1(address, one);
        }
    } else if (matrices == 2) {
        if (transposed) {
            stmatrix_x2_transposed(address, two);
        } else {
            stmatrix_x2(address, two);
        }
    } else if (transposed) {
        stmatrix_x4_transposed(address, fragment);
    } else {
        stmatrix_x4(address, fragment);
    }
}

extern "C" __global__ void __launch_bounds__(warp_size)
    matrix_round_trip(const __grid_constant__ MatrixRoundTripArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t loaded_rows = shared_address(shared_memory);
    const uint32_t stored_rows = loaded_rows + warp_size * row_bytes;
    const int lane = static_cast<int>(threadIdx.x);
    // A permutation: the rows of a matrix need not follow each other.
    const int row = lane * 5 % warp_size;

    store_shared(loaded_rows + row * row_bytes, static_cast<const uint4*>(arguments.rows)[lane]);
    store_shared(stored_rows + lane * row_bytes, uint4{0, 0, 0, 0});
    __syncwarp();

    OperandRegister fragment[4] = {0, 0, 0, 0};
    load(fragment, loaded_rows + row * row_bytes, arguments.matrices,
         arguments.load_transposed != 0);
    for (int i = 0; i < 4; ++i) {
        arguments.registers[lane * 4 + i] = fragment[i];
    }
    store(stored_rows + row * row_bytes, fragment, arguments.matrices,
          arguments.store_transposed != 0);
    __syncwarp();
    static_cast<uint4*>(arguments.stored)[lane] = load_shared<uint4>(stored_rows + row * row_bytes);
}

extern "C" __global__ void __launch_bounds__(warp_size)
    mma_product(const __grid_constant__ MmaProductArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t a_tile = shared_address(shared_memory);
    const uint32_t b_tile = a_tile + mma_m * mma_k * sizeof(Element);
    const int lane = static_cast<int>(threadIdx.x);

    // Lane by lane the 16 bytes that it will name to ldmatrix: rows 0 … 15 of A, first the left
    // half of each, then the right one, and the same of B's eight columns.
    const int a_row = lane % mma_m;
    const int a_half = lane / mma_m;
    store_shared(a_tile + lane * row_bytes,
                 static_cast<const uint4*>(arguments.a)[a_row * 2 + a_half]);
    if (lane < mma_k) {
        const int b_column = lane % mma_n;
        const int b_half = lane / mma_n;
        store_shared(b_tile + lane * row_bytes,
                     static_cast<const uint4*>(arguments.b)[b_column * 2 + b_half]);
    }
    __syncwarp();

    OperandRegister a[4];
    OperandRegister b[2];
    ldmatrix_x4(a, a_tile + lane * row_bytes);
    ldmatrix_x2(b, b_tile + lane % mma_k * row_bytes);
    AccumulatorRegister c[4];
    const int row = lane / 4;
    const int column = lane % 4 * 2;
    for (int i = 0; i < 4; ++i) {
        c[i] = arguments.c[(row + i / 2 * 8) * mma_n + column + i % 2];
    }
    mma_m16n8k16<Element>(c, a, b[0], b[1]);
    for (int i = 0; i < 4; ++i) {
        arguments.c[(row + i / 2 * 8) * mma_n + column + i % 2] = c[i];
    }
}

}  // namespace backlight::kernel
