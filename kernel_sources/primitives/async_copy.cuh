// cp.async: copies of 4, 8 or 16 bytes a thread from global to shared memory that need no register.
// Both addresses are aligned to the size. A thread's own copies are waited for in groups, in order;
// other threads see them after a barrier that follows the wait.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Reads the first `source_bytes` of `bytes` (all, none or a part) and fills the rest with zeros.
template <int bytes>
__device__ __forceinline__ void async_copy(uint32_t destination, const void* source,
                                           int source_bytes = bytes) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    if constexpr (bytes == 16) {
        // Past the L1 cache, which only this size can do.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                     :
                     : "r"(destination), "l"(source), "r"(source_bytes)
                     : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                     :
                     : "r"(destination), "l"(source), "n"(bytes), "r"(source_bytes)
                     : "memory");
    }
}

/// Closes the group of the copies since the last call.
__device__ __forceinline__ void async_copy_commit() {
    asm volatile("cp.async.commit_group;" : : : "memory");
}

/// Waits until at most that many of the thread's latest groups are still under way.
template <int groups_pending>
__device__ __forceinline__ void async_copy_wait() {
    asm volatile("cp.async.wait_group %0;" : : "n"(groups_pending) : "memory");
}

}  // namespace backlight::kernel
