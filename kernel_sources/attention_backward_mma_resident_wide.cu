// The attention backward with mma.sync and TMA for heads of more than 128 columns: v4, widened.
//
// Where a warp has dK and dV of 16 keys in attention_backward_mma_resident.cu, two share them here,
// a pair: 256 columns of both would be all the registers of a thread. As there all products have
// keys as rows, and what one warp needs of the other is P alone, which lies in the lanes of the one
// as it is needed in those of the other.
//
//     value warp | Sᵀ | exp → P |        dV        | dQ |
//                               ↓ (through shared memory, a barrier of the two)
//     key warp   |     dPᵀ      | dS |     dK      | dQ |
//                                    ↓ (through shared memory, a barrier of all key warps)
//
// Both have as many products to make, and the two warps of a pair share a scheduler: what one
// leaves idle the other fills, as the second block on a multiprocessor does for narrow heads. K is
// in shared memory, V in the registers of the key warps.
//
// A block owns 64 keys and walks over the queries by 32; eight warps divide dQ = dS K. Widths of Q
// and K and of V and O are apart, each of one to four panels of 64 columns.
#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/packed_work.cuh"
#include "attention_backward_mma_resident_wide/key_warp.cuh"
#include "attention_backward_mma_resident_wide/layout.cuh"
#include "attention_backward_mma_resident_wide/value_warp.cuh"
#include "attention_backward_packing/work.cuh"
#include "attention_backward_rounds/turns.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_memory.cuh"

namespace backlight::kernel {

/// What both kinds of warps do alike around their work. V has gone to registers behind the first
/// barrier of the block: Q, dS and P come to lie over it.
template <typename Warp>
__device__ __forceinline__ void work_on_queries(Warp& warp, bool unseen) {
    __syncthreads();
    // The accumulator has been zeroed by the delta kernel.
    wait_for_previous_kernel();
    if (!unseen) {
        warp.work();
    }
    if constexpr (deterministic) {
        // Others wait for it, and when the next kernel may start nobody is to wait any more.
        __syncthreads();
        warp.count_last_turn();
        __syncthreads();
    }
    allow_next_kernel();
    warp.store();
}

__device__ __forceinline__ Work work_of_block(const MmaResidentArguments& arguments,
                                              SharedMemory shared) {
    if constexpr (packed) {
        Work work;
        work.tile = load_packed_tile(shared.packed_tile());
        return work;
    } else {
        const int ticket = takes_tickets ? static_cast<int>(load_shared<uint32_t>(shared.ticket()))
                                         : static_cast<int>(blockIdx.x);
        return Work(arguments, arguments.heads_per_group, ticket);
    }
}

extern "C" __global__ void __launch_bounds__(threads, 1)
    attention_backward_mma_resident_wide(const __grid_constant__ MmaResidentArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const SharedMemory shared{shared_address(shared_memory)};
    const int thread = static_cast<int>(threadIdx.x);

    if (thread == 0) {
        mbarrier_initialise(shared.kv_full(), 1);
        for (int stage = 0; stage < q_stages; ++stage) {
            mbarrier_initialise(shared.q_full(stage), 1);
        }
        for (int stage = 0; stage < d_o_stages; ++stage) {
            mbarrier_initialise(shared.d_o_full(stage), 1);
        }
        // And one of who sees that it is the block's turn.
        mbarrier_initialise(shared.exchanged(), pairs + (deterministic ? 1 : 0));
        mbarrier_initialise(shared.d_o_read(), pairs);
        mbarrier_initialisation_fence();
        if constexpr (takes_tickets && !packed) {
            // The counters come from the delta kernel.
            wait_for_previous_kernel();
            store_shared(shared.ticket(), take_ticket(arguments.counters.tickets));
        }
    }
    const int lane = thread % warp_size;
    if constexpr (packed) {
        // By the warp that loads.
        if (thread / warp_size == pairs) {
            find_packed_work(arguments, shared, lane);
        }
    }
    __syncthreads();

    const Work work = work_of_block(arguments, shared);
    if (!work.has_tile()) {
        return;
    }
    // The same in all lanes, which the compiler cannot know.
    const int warp = __shfl_sync(0xffffffffu, thread / warp_size, 0);
    const bool unseen = is_unseen(arguments, work.tile);
    if (warp < pairs) {
        KeyWarp key_warp(arguments, shared, work.tile, warp, lane);
        if (!unseen) {
            mbarrier_wait(shared.kv_full(), 0);
            key_warp.take_v();
        }
        work_on_queries(key_warp, unseen);
    } else {
        ValueWarp value_warp(arguments, shared, work.tile, warp, lane);
        if (!unseen) {
            value_warp.begin();
            mbarrier_wait(shared.kv_full(), 0);
        }
        work_on_queries(value_warp, unseen);
    }
}

}  // namespace backlight::kernel
