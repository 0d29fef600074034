// Barriers of a part of a block's threads. Barrier 0 is __syncthreads(); 1 to 15 are free. The
// count is of threads, a multiple of 32, and counts those that wait and those that only arrive. All
// threads of a warp take part together.
#pragma once

namespace backlight::kernel {

/// Waits until `threads` threads have come; what they wrote before is visible then.
__device__ __forceinline__ void named_barrier_synchronise(int barrier, int threads) {
    asm volatile("bar.sync %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

/// Comes to the barrier and goes on without waiting.
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
    asm volatile("bar.arrive %0, %1;" : : "r"(barrier), "r"(threads) : "memory");
}

}  // namespace backlight::kernel
