// The attention backward with mma.sync and TMA, P and dS resident in registers: v4.
//
// A thread block owns block_kv = 64 keys and values of one head and walks over the queries, block_q
// at a time. Each of its four warps owns 16 keys. Everything is computed transposed, with keys as
// rows, because the result of a product has the layout of the next one's A operand: P and dS feed
// dV and dK from the registers in which they arise, without a barrier and without a way through
// shared memory.
//
//     Sᵀ  = K Qᵀ         dPᵀ = V dOᵀ          V stays in registers
//     P   = exp(scale · S − LSE)
//     dS  = P ∘ (dP − delta)                   dSᵀ alone goes to shared memory
//     dV += Pᵀ dO        dK += dSᵀ Q
//     dQ  = dS K                               summed over blocks in an fp32 accumulator
//
// dQ needs the dS of all keys, and so the warps divide it anew. That exchange is the one place in a
// tile where they wait for each other, in two halves: a warp arrives when its dS is stored and
// waits when it has computed dK.
//
//     tensor cores   | Sᵀ | dPᵀ | dV |         | dK |           | dQ |
//     other units         exp → P   dS … stored               dQ added to the accumulator
//     barriers       q_full, d_o_full   arrive       wait
//
// The first warp waits before dK instead: behind the arrivals it asks for the next tile, whose Q
// has a second place and whose dO may go over this one's (KeyWarp::end_reads says why).
// What a tile leaves idle, mostly at the exchange, a second block on the same multiprocessor fills.
//
// dQ and dK lack the factor softmax_scale: dK gets it when it is stored, dQ when it is converted.
#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/converter.cuh"
#include "attention_backward_mma_resident/key_warp.cuh"
#include "attention_backward_mma_resident/layout.cuh"
#include "attention_backward_mma_resident/packed_work.cuh"
#include "attention_backward_packing/work.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_memory.cuh"

namespace backlight::kernel {

__device__ __forceinline__ Work load_packed_work(SharedMemory shared) {
    Work work;
    work.tile = load_packed_tile(shared.packed_tile());
    work.conversion.batch_head = Work::nothing;
    if constexpr (converts_d_q) {
        work.conversion = load_packed_conversion(shared.packed_conversion());
    }
    return work;
}

extern "C" __global__ void __launch_bounds__(threads, blocks_per_multiprocessor)
    attention_backward_mma_resident(const __grid_constant__ MmaResidentArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const SharedMemory shared{shared_address(shared_memory)};
    const int thread = static_cast<int>(threadIdx.x);

    if (thread == 0) {
        mbarrier_initialise(shared.kv_full(), 1);
        for (int stage = 0; stage < q_stages; ++stage) {
            mbarrier_initialise(shared.q_full(stage), 1);
        }
        mbarrier_initialise(shared.d_o_full(), 1);
        mbarrier_initialise(shared.exchanged(), warps);
        mbarrier_initialisation_fence();
        if constexpr (takes_tickets && !packed) {
            // The counters come from the delta kernel.
            wait_for_previous_kernel();
            store_shared(shared.ticket(), take_ticket(arguments.counters.tickets));
        }
    }
    if constexpr (packed) {
        if (thread < warp_size) {
            find_packed_work(arguments, shared, thread);
        }
    }
    __syncthreads();

    const int ticket = takes_tickets && !packed
                           ? static_cast<int>(load_shared<uint32_t>(shared.ticket()))
                           : static_cast<int>(blockIdx.x);
    const Work work =
        packed ? load_packed_work(shared) : Work(arguments, arguments.heads_per_group, ticket);
    // The same in all lanes, which the compiler cannot know.
    const int place = __shfl_sync(0xffffffffu, thread / warp_size, 0);
    // On the diagonal the first keys are seen by most queries: no scheduler has them in all blocks.
    const int warp = causal && ticket % 2 != 0 ? warps - 1 - place : place;
    KeyWarp key_warp(arguments, shared, work.tile, warp, thread % warp_size);
    if (work.has_tile()) {
        key_warp.begin();
    }
    if constexpr (converts_d_q) {
        if (work.has_conversion()) {
            Converter(arguments, thread).convert(work.conversion);
        }
    }
    if (work.has_tile()) {
        key_warp.work();
    }
}

}  // namespace backlight::kernel
