// Counters in global memory, by which blocks of a grid tell each other how far they have come. All
// are 32-bit and only grow. What a thread has written, and what it has seen written (a bulk copy
// that it has waited for, too), before it adds is visible to who has read the sum.
//
// A block may wait only for blocks that are certain to run: for one that took a lower ticket.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// The next number of the counter; no order with other memory.
__device__ __forceinline__ uint32_t take_ticket(uint32_t* counter) {
    uint32_t ticket;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;"
                 : "=r"(ticket)
                 : "l"(counter)
                 : "memory");
    return ticket;
}

/// Adds one to a counter.
__device__ __forceinline__ void count_global(uint32_t* counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(counter) : "memory");
}

__device__ __forceinline__ uint32_t load_global_counter(const uint32_t* counter) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

/// Waits until the counter has reached `value`, and tells what it is then. Each look that comes too
/// early is followed by a sleep of about that many nanoseconds.
template <int nanoseconds>
__device__ __forceinline__ uint32_t wait_for_global_counter(const uint32_t* counter,
                                                            uint32_t value) {
    uint32_t reached = load_global_counter(counter);
    while (reached < value) {
        asm volatile("nanosleep.u32 %0;" : : "n"(nanoseconds));
        reached = load_global_counter(counter);
    }
    return reached;
}

}  // namespace backlight::kernel
