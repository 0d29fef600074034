// wgmma: D (64×n, fp32) = A (64×16) · B (16×n), added to D or not, by the four warps of a warpgroup
// together and asynchronously. A comes from shared memory or from registers, B from shared memory.
//
// Thread t of the warpgroup (warp w = t / 32, lane l = t % 32) holds of each group g of eight
// columns of D: in d[4g], d[4g + 1] row 16w + l / 4, columns 8g + 2·(l % 4) + {0, 1}; in d[4g + 2],
// d[4g + 3] the same columns of row 16w + l / 4 + 8. A in registers: a[0] and a[1] hold elements
// k = 2·(l % 4) + {0, 1} of the same two rows, a[2] and a[3] those of k + 8.
//
// A step is: write registers, wgmma_fence, wgmma_m64k16 as often as needed, wgmma_commit,
// wgmma_wait, wgmma_settle. Until the wait nothing may touch the registers of D and A, nor write
// the shared memory that the products read.
#pragma once

#include "primitives/matrix_descriptor.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// Orders this warpgroup's earlier accesses to registers before the products that follow. Needed
/// before the first product, and whenever anything but a product has touched their registers.
__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

/// Closes the group of the products since the last call.
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}

/// Waits until at most that many of the latest groups are still under way.
template <int groups_pending>
__device__ __forceinline__ void wgmma_wait() {
    static_assert(groups_pending >= 0 && groups_pending <= 7, "0 to 7 groups");
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(groups_pending) : "memory");
}

/// Comes after the wait, for the registers of its products: the compiler does not know that the
/// wait fills an accumulator, or that a register of A was read until then, and would move uses of
/// them over it. No instruction.
template <int count>
__device__ __forceinline__ void wgmma_settle(AccumulatorRegister (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        asm volatile("" : "+f"(registers[i]) : : "memory");
    }
}

template <int count>
__device__ __forceinline__ void wgmma_settle(OperandRegister (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
        asm volatile("" : "+r"(registers[i]) : : "memory");
    }
}

template <typename Register, int fragments, int count>
__device__ __forceinline__ void wgmma_settle(Register (&registers)[fragments][count]) {
#pragma unroll
    for (int i = 0; i < fragments; ++i) {
        wgmma_settle(registers[i]);
    }
}

/// The widths that the products below are written for.
template <int n>
constexpr bool wgmma_width = n == 32 || n == 64 || n == 96 || n == 128 || n == 192 || n == 256;

template <typename Element>
constexpr bool is_bf16 = false;
template <>
constexpr bool is_bf16<bf16> = true;

// An asm statement names each register twice: in its text and among its operands. Both lists are
// put together from pieces of sixteen.
#define BACKLIGHT_NAMES_0              \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define BACKLIGHT_NAMES_16                       \
    ", %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define BACKLIGHT_NAMES_32                       \
    ", %32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47"
#define BACKLIGHT_NAMES_48                       \
    ", %48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define BACKLIGHT_NAMES_64                       \
    ", %64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define BACKLIGHT_NAMES_80                       \
    ", %80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95"
#define BACKLIGHT_NAMES_96                           \
    ", %96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111"
#define BACKLIGHT_NAMES_112                              \
    ", %112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define BACKLIGHT_NAMES_N32 BACKLIGHT_NAMES_0
#define BACKLIGHT_NAMES_N64 BACKLIGHT_NAMES_N32 BACKLIGHT_NAMES_16
#define BACKLIGHT_NAMES_N96 BACKLIGHT_NAMES_N64 BACKLIGHT_NAMES_32
#define BACKLIGHT_NAMES_N128 BACKLIGHT_NAMES_N96 BACKLIGHT_NAMES_48
#define BACKLIGHT_NAMES_N192 BACKLIGHT_NAMES_N128 BACKLIGHT_NAMES_64 BACKLIGHT_NAMES_80
#define BACKLIGHT_NAMES_N256 BACKLIGHT_NAMES_N192 BACKLIGHT_NAMES_96 BACKLIGHT_NAMES_112

#define BACKLIGHT_SIXTEEN(i)                                                                 \
    "+f"(d[i + 0]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]),          \
        "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]),      \
        "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), \
        "+f"(d[i + 15])
#define BACKLIGHT_REGISTERS_N32 BACKLIGHT_SIXTEEN(0)
#define BACKLIGHT_REGISTERS_N64 BACKLIGHT_REGISTERS_N32, BACKLIGHT_SIXTEEN(16)
#define BACKLIGHT_REGISTERS_N96 BACKLIGHT_REGISTERS_N64, BACKLIGHT_SIXTEEN(32)
#define BACKLIGHT_REGISTERS_N128 BACKLIGHT_REGISTERS_N96, BACKLIGHT_SIXTEEN(48)
#define BACKLIGHT_REGISTERS_N192 \
    BACKLIGHT_REGISTERS_N128, BACKLIGHT_SIXTEEN(64), BACKLIGHT_SIXTEEN(80)
#define BACKLIGHT_REGISTERS_N256 \
    BACKLIGHT_REGISTERS_N192, BACKLIGHT_SIXTEEN(96), BACKLIGHT_SIXTEEN(112)

// `operands` is the text after the accumulators, the rest the operands that it names.
// clang-format off
#define BACKLIGHT_WGMMA_OF(type, n, accumulate, operands, ...)                             \
    asm volatile(                                                                          \
        "{\n"                                                                              \
        ".reg .pred accumulate;\n"                                                         \
        "setp.ne.b32 accumulate, %" #accumulate ", 0;\n"                                   \
        "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type                    \
        " {" BACKLIGHT_NAMES_N##n "}, " operands ";\n"                                     \
        "}"                                                                                \
        : BACKLIGHT_REGISTERS_N##n                                                         \
        : __VA_ARGS__)
// clang-format on

#define BACKLIGHT_WGMMA(...)                     \
    if constexpr (is_bf16<Element>) {            \
        BACKLIGHT_WGMMA_OF("bf16", __VA_ARGS__); \
    } else {                                     \
        BACKLIGHT_WGMMA_OF("f16", __VA_ARGS__);  \
    }

// The numbers are those of the operands, which come after the n / 2 accumulators.
#define BACKLIGHT_WGMMA_A_SHARED(n, a_, b_, accumulate_, a_major_, b_major_)             \
    BACKLIGHT_WGMMA(n, accumulate_,                                                      \
                    "%" #a_ ", %" #b_ ", accumulate, 1, 1, %" #a_major_ ", %" #b_major_, \
                    "l"(a.bits), "l"(b.bits), "r"(static_cast<int>(accumulate)),         \
                    "n"(static_cast<int>(a_major)), "n"(static_cast<int>(b_major)))

#define BACKLIGHT_WGMMA_A_REGISTERS(n, a0, a1, a2, a3, b_, accumulate_, b_major_) \
    BACKLIGHT_WGMMA(n, accumulate_,                                               \
                    "{%" #a0 ", %" #a1 ", %" #a2 ", %" #a3 "}, %" #b_             \
                    ", accumulate, 1, 1, %" #b_major_,                            \
                    "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits),      \
                    "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(b_major)))

/// D = A · B, added to what D holds where `accumulate`. Both operands in shared memory, written
/// before a proxy fence or by TMA.
template <typename Element, int n, Major a_major, Major b_major>
__device__ __forceinline__ void wgmma_m64k16(AccumulatorRegister (&d)[n / 2], MatrixDescriptor a,
                                             MatrixDescriptor b, bool accumulate) {
    static_assert(wgmma_width<n>, "n is 32, 64, 96, 128, 192 or 256");
    if constexpr (n == 32) {
        BACKLIGHT_WGMMA_A_SHARED(32, 16, 17, 18, 19, 20);
    } else if constexpr (n == 64) {
        BACKLIGHT_WGMMA_A_SHARED(64, 32, 33, 34, 35, 36);
    } else if constexpr (n == 96) {
        BACKLIGHT_WGMMA_A_SHARED(96, 48, 49, 50, 51, 52);
    } else if constexpr (n == 128) {
        BACKLIGHT_WGMMA_A_SHARED(128, 64, 65, 66, 67, 68);
    } else if constexpr (n == 192) {
        BACKLIGHT_WGMMA_A_SHARED(192, 96, 97, 98, 99, 100);
    } else if constexpr (n == 256) {
        BACKLIGHT_WGMMA_A_SHARED(256, 128, 129, 130, 131, 132);
    }
}

/// The same with A in registers.
template <typename Element, int n, Major b_major>
__device__ __forceinline__ void wgmma_m64k16(AccumulatorRegister (&d)[n / 2],
                                             const OperandRegister (&a)[4], MatrixDescriptor b,
                                             bool accumulate) {
    static_assert(wgmma_width<n>, "n is 32, 64, 96, 128, 192 or 256");
    if constexpr (n == 32) {
        BACKLIGHT_WGMMA_A_REGISTERS(32, 16, 17, 18, 19, 20, 21, 22);
    } else if constexpr (n == 64) {
        BACKLIGHT_WGMMA_A_REGISTERS(64, 32, 33, 34, 35, 36, 37, 38);
    } else if constexpr (n == 96) {
        BACKLIGHT_WGMMA_A_REGISTERS(96, 48, 49, 50, 51, 52, 53, 54);
    } else if constexpr (n == 128) {
        BACKLIGHT_WGMMA_A_REGISTERS(128, 64, 65, 66, 67, 68, 69, 70);
    } else if constexpr (n == 192) {
        BACKLIGHT_WGMMA_A_REGISTERS(192, 96, 97, 98, 99, 100, 101, 102);
    } else if constexpr (n == 256) {
        BACKLIGHT_WGMMA_A_REGISTERS(256, 128, 129, 130, 131, 132, 133, 134);
    }
}

#undef BACKLIGHT_NAMES_0
#undef BACKLIGHT_NAMES_16
#undef BACKLIGHT_NAMES_32
#undef BACKLIGHT_NAMES_48
#undef BACKLIGHT_NAMES_64
#undef BACKLIGHT_NAMES_80
#undef BACKLIGHT_NAMES_96
#undef BACKLIGHT_NAMES_112
#undef BACKLIGHT_NAMES_N32
#undef BACKLIGHT_NAMES_N64
#undef BACKLIGHT_NAMES_N96
#undef BACKLIGHT_NAMES_N128
#undef BACKLIGHT_NAMES_N192
#undef BACKLIGHT_NAMES_N256
#undef BACKLIGHT_SIXTEEN
#undef BACKLIGHT_REGISTERS_N32
#undef BACKLIGHT_REGISTERS_N64
#undef BACKLIGHT_REGISTERS_N96
#undef BACKLIGHT_REGISTERS_N128
#undef BACKLIGHT_REGISTERS_N192
#undef BACKLIGHT_REGISTERS_N256
#undef BACKLIGHT_WGMMA_OF
#undef BACKLIGHT_WGMMA
#undef BACKLIGHT_WGMMA_A_SHARED
#undef BACKLIGHT_WGMMA_A_REGISTERS

}  // namespace backlight::kernel
