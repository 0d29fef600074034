// stmatrix: the inverse of ldmatrix, from registers to 8×8 matrices of 16-bit elements in shared
// memory. Lanes name rows, and registers hold elements, as ldmatrix.cuh says.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

__device__ __forceinline__ void stmatrix_x1(uint32_t address,
                                            const OperandRegister (&fragment)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                 :
                 : "r"(address), "r"(fragment[0])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2(uint32_t address,
                                            const OperandRegister (&fragment)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4(uint32_t address,
                                            const OperandRegister (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]),
                   "r"(fragment[3])
                 : "memory");
}

/// The same, each matrix transposed on the way.
__device__ __forceinline__ void stmatrix_x1_transposed(uint32_t address,
                                                       const OperandRegister (&fragment)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
                 :
                 : "r"(address), "r"(fragment[0])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x2_transposed(uint32_t address,
                                                       const OperandRegister (&fragment)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1])
                 : "memory");
}

__device__ __forceinline__ void stmatrix_x4_transposed(uint32_t address,
                                                       const OperandRegister (&fragment)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(fragment[0]), "r"(fragment[1]), "r"(fragment[2]),
                   "r"(fragment[3])
                 : "memory");
}

}  // namespace backlight::kernel
