// mbarrier: a barrier in shared memory that counts arrivals and, for asynchronous copies, bytes.
// Phases alternate in parity, starting with 0: a wait for parity p returns once the phase of that
// parity has completed.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

__device__ __forceinline__ void mbarrier_initialise(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" : : "r"(barrier), "r"(arrivals));
}

/// Makes initialised barriers visible to the asynchronous proxy (TMA), which completes them.
__device__ __forceinline__ void mbarrier_initialisation_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

/// Arrives once.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                 :
                 : "r"(barrier)
                 : "memory");
}

/// Arrives once and adds `bytes` to what the current phase still waits for.
__device__ __forceinline__ void mbarrier_arrive_expect_bytes(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;"
                 :
                 : "r"(barrier), "r"(bytes)
                 : "memory");
}

/// True once the phase of that parity has completed; may suspend the thread for a while first.
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, int parity) {
    uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, int parity) {
    while (!mbarrier_try_wait(barrier, parity)) {
    }
}

}  // namespace backlight::kernel
