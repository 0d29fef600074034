// Bulk tensor copies by the TMA unit.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Copies one box of a four-dimensional tensor into shared memory, coordinates fastest first, and
/// counts its bytes on the barrier. Written for a destination in the executing block
/// (.shared::cta): the cluster form costs a check and a call a copy on sm_120.
__device__ __forceinline__ void tma_load_4d(uint32_t destination, const void* tensor_map, int x,
                                            int y, int z, int w, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
        : "memory");
}

/// True in one lane of a converged warp: the one that speaks for it.
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, chosen;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

}  // namespace backlight::kernel
