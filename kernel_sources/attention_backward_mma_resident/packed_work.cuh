// How a block of the register-resident mma kernels finds its work where sequences are packed.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/constants.cuh"
#include "attention_backward_packing/work.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/global_counter.cuh"

namespace backlight::kernel {

/// Leaves it in shared memory for the block to read; by all lanes of a warp.
template <typename SharedMemory>
__device__ __forceinline__ void find_packed_work(const MmaResidentArguments& arguments,
                                                 SharedMemory shared, int lane) {
    // Order, maps and counters come from the delta kernel.
    wait_for_previous_kernel();
    int ticket = static_cast<int>(blockIdx.x);
    if constexpr (takes_tickets) {
        if (lane == 0) {
            ticket = static_cast<int>(take_ticket(arguments.counters.tickets));
        }
        ticket = __shfl_sync(0xffffffffu, ticket, 0);
    }
    if constexpr (converts_d_q) {
        find_packed_conversion(arguments, ticket, shared.packed_conversion(), lane);
    }
    find_packed_tile(arguments, ticket, shared.packed_tile(), lane);
}

}  // namespace backlight::kernel
