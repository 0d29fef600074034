// Fences between the generic proxy (a thread's own loads and stores) and the asynchronous proxy
// (TMA, bulk copies, wgmma's reads of shared memory). Whoever has written what an asynchronous
// operation reads, or has read what one overwrites, passes a fence before the barrier, or the
// instruction, that lets the operation loose.
#pragma once

namespace backlight::kernel {

/// Orders this thread's reads and writes of shared memory before those of the asynchronous proxy
/// that a later barrier lets loose: between the last read of a tile and the copy over it.
__device__ __forceinline__ void fence_shared_before_async_proxy() {
    asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

/// The same for global memory.
__device__ __forceinline__ void fence_global_before_async_proxy() {
    asm volatile("fence.proxy.async.global;" : : : "memory");
}

/// The same for both.
__device__ __forceinline__ void fence_before_async_proxy() {
    asm volatile("fence.proxy.async;" : : : "memory");
}

}  // namespace backlight::kernel
