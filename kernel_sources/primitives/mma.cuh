// mma.m16n8k16: C (16×8, fp32) += A (16×16) · B (16×8), A row-major, B column-major.
//
// Lane l holds C[l / 4][2·(l % 4) + {0, 1}] in c[0], c[1] and the same columns of row l / 4 + 8 in
// c[2], c[3].
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

constexpr int mma_m = 16;
constexpr int mma_n = 8;
constexpr int mma_k = 16;

template <typename Element>
__device__ __forceinline__ void mma_m16n8k16(AccumulatorRegister (&c)[4],
                                             const OperandRegister (&a)[4],
                                             const OperandRegister& b0, const OperandRegister& b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<bf16>(AccumulatorRegister (&c)[4],
                                                   const OperandRegister (&a)[4],
                                                   const OperandRegister& b0,
                                                   const OperandRegister& b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<fp16>(AccumulatorRegister (&c)[4],
                                                   const OperandRegister (&a)[4],
                                                   const OperandRegister& b0,
                                                   const OperandRegister& b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace backlight::kernel
