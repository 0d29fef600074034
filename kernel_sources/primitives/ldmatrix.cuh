// ldmatrix: one, two or four 8×8 matrices of 16-bit elements from shared memory into the register
// layout of mma.m16n8k16. Lane l names the 16-byte row (l % 8) of matrix (l / 8); with fewer than
// four matrices the lanes beyond the last one name nothing. Register m of lane l receives elements
// 2·(l % 4) and the next one of row l / 4 of matrix m; transposed, of column l / 4.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

__device__ __forceinline__ void ldmatrix_x1(OperandRegister (&fragment)[1], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(fragment[0])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2(OperandRegister (&fragment)[2], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(OperandRegister (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

/// The same, each matrix transposed on the way.
__device__ __forceinline__ void ldmatrix_x1_transposed(OperandRegister (&fragment)[1],
                                                       uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(fragment[0])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x2_transposed(OperandRegister (&fragment)[2],
                                                       uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(fragment[0]), "=r"(fragment[1])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_transposed(OperandRegister (&fragment)[4],
                                                       uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

}  // namespace backlight::kernel
