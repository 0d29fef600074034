// Bulk copies: contiguous bytes by the TMA unit without a tensor map. Addresses and sizes are
// multiples of 16 bytes. Stores and reductions, those of tensors too (tma.cuh), are waited for in
// groups by the thread that issued them.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Global to shared memory; the bytes are counted on the barrier.
__device__ __forceinline__ void bulk_load(uint32_t destination, const void* source, int bytes,
                                          uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
        :
        : "r"(destination), "l"(source), "r"(bytes), "r"(barrier)
        : "memory");
}

/// Shared to global memory.
__device__ __forceinline__ void bulk_store(void* destination, uint32_t source, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 :
                 : "l"(destination), "r"(source), "r"(bytes)
                 : "memory");
}

/// Adds numbers in shared memory to those in global memory: float, bf16 or fp16, each sum rounded
/// to its type.
template <typename Number>
__device__ __forceinline__ void bulk_reduce_add(void* destination, uint32_t source, int bytes);

template <>
__device__ __forceinline__ void bulk_reduce_add<float>(void* destination, uint32_t source,
                                                       int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 :
                 : "l"(destination), "r"(source), "r"(bytes)
                 : "memory");
}

template <>
__device__ __forceinline__ void bulk_reduce_add<bf16>(void* destination, uint32_t source,
                                                      int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;"
                 :
                 : "l"(destination), "r"(source), "r"(bytes)
                 : "memory");
}

template <>
__device__ __forceinline__ void bulk_reduce_add<fp16>(void* destination, uint32_t source,
                                                      int bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%0], [%1], %2;"
                 :
                 : "l"(destination), "r"(source), "r"(bytes)
                 : "memory");
}

/// Closes the group of the thread's stores and reductions since the last call.
__device__ __forceinline__ void bulk_commit() {
    asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}

/// Waits until at most that many of the thread's latest groups are not complete.
template <int groups_pending>
__device__ __forceinline__ void bulk_wait() {
    asm volatile("cp.async.bulk.wait_group %0;" : : "n"(groups_pending) : "memory");
}

/// Waits until all but at most that many of the latest groups have read their sources: shared
/// memory may be written again, the results need not be visible yet.
template <int groups_pending>
__device__ __forceinline__ void bulk_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(groups_pending) : "memory");
}

}  // namespace backlight::kernel
