// Barriers of every kind, warp specialisation with setmaxnreg, votes, shuffles, reductions.
#include "arguments/attention_backward.h"
#include "primitives/bulk_copy.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/reduction.cuh"
#include "primitives/register_allocation.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

constexpr int full_barrier = 1;
constexpr int empty_barrier = 2;

extern "C" __global__ void __launch_bounds__(2 * warp_size)
    named_barriers(const __grid_constant__ HandoverArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const int lane = static_cast<int>(threadIdx.x % warp_size);
    const bool producer = threadIdx.x < warp_size;
    for (int round = 0; round < arguments.rounds; ++round) {
        if (producer) {
            if (round > 0) {
                named_barrier_synchronise(empty_barrier, 2 * warp_size);
            }
            store_shared(shared + lane * 4, arguments.source[round * warp_size + lane]);
            named_barrier_arrive(full_barrier, 2 * warp_size);
        } else {
            named_barrier_synchronise(full_barrier, 2 * warp_size);
            // Another lane's value, which only the barrier makes visible.
            const int other = warp_size - 1 - lane;
            arguments.out[round * warp_size + lane] = load_shared<uint32_t>(shared + other * 4);
            if (round + 1 < arguments.rounds) {
                named_barrier_arrive(empty_barrier, 2 * warp_size);
            }
        }
    }
}

// A ring of stages between a producer and consumers: `full` counts the producer's arrival and the
// bytes of its copy, `empty` one arrival a consumer warp.
constexpr int stages = 3;
constexpr int consumer_threads = specialisation::consumer_warpgroups * 128;
constexpr int consumer_warps = consumer_threads / warp_size;
constexpr int pipeline_threads = consumer_threads + 128;
constexpr int tile_bytes = consumer_threads * 4;

struct Ring {
    uint32_t shared;

    __device__ uint32_t tile(int stage) const { return shared + stage * tile_bytes; }
    __device__ uint32_t full(int stage) const { return shared + stages * tile_bytes + stage * 8; }
    __device__ uint32_t empty(int stage) const { return full(stage) + stages * 8; }
};

extern "C" __global__ void __launch_bounds__(pipeline_threads, 1)
    pipeline(const __grid_constant__ PipelineArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const Ring ring{shared_address(shared_memory)};
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < stages; ++stage) {
            mbarrier_initialise(ring.full(stage), 1);
            mbarrier_initialise(ring.empty(stage), consumer_warps);
        }
        mbarrier_initialisation_fence();
    }
    __syncthreads();

    if (threadIdx.x >= consumer_threads) {
        if constexpr (specialisation::move_registers) {
            decrease_registers<24>();
        }
        if (threadIdx.x == consumer_threads) {
            for (int tile = 0; tile < arguments.tiles; ++tile) {
                const int stage = tile % stages;
                // The first turn finds every stage empty: the phase before the first counts as
                // complete.
                mbarrier_wait(ring.empty(stage), tile / stages % 2 ^ 1);
                mbarrier_arrive_expect_bytes(ring.full(stage), tile_bytes);
                bulk_load(ring.tile(stage), arguments.source + tile * consumer_threads, tile_bytes,
                          ring.full(stage));
            }
        }
    } else {
        if constexpr (specialisation::move_registers) {
            increase_registers<240>();
        }
        const int thread = static_cast<int>(threadIdx.x);
        const int lane = thread % warp_size;
        float sum = 0;
        float last = 0;
        for (int tile = 0; tile < arguments.tiles; ++tile) {
            const int stage = tile % stages;
            mbarrier_wait(ring.full(stage), tile / stages % 2);
            last = load_shared<float>(ring.tile(stage) + thread * 4);
            sum += last;
            // Every lane has read before one speaks for the warp.
            __syncwarp();
            if (lane == 0) {
                mbarrier_arrive(ring.empty(stage));
            }
        }
        arguments.out[thread] = sum;
        arguments.last[thread] = last;
    }
}

extern "C" __global__ void __launch_bounds__(warp_size)
    warp_collectives(const __grid_constant__ CollectivesArguments arguments) {
    constexpr uint32_t all = 0xffffffffu;
    const uint32_t lane = threadIdx.x;
    const uint32_t value = arguments.values[lane];
    uint32_t* out = arguments.out + lane * collective_results;
    out[0] = __ballot_sync(all, value % 3 == 0);
    out[1] = __any_sync(all, value == 7) != 0 ? 1 : 0;
    out[2] = __all_sync(all, value != 7) != 0 ? 1 : 0;
    out[3] = __shfl_sync(all, value, static_cast<int>((lane * 7 + 3) % warp_size));
    out[4] = __shfl_xor_sync(all, value, 5);
    out[5] = __shfl_up_sync(all, value, 3);
    out[6] = __shfl_down_sync(all, value, 6);
    out[7] = static_cast<uint32_t>(warp_sum<8>(static_cast<float>(value % 1000)));
    out[8] = elect_one() ? 1 : 0;
}

extern "C" __global__ void __launch_bounds__(warp_size)
    global_counters(const __grid_constant__ GlobalCounterArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    if (threadIdx.x == 0) {
        store_shared(shared, take_ticket(arguments.ticket_counter));
    }
    __syncthreads();
    const uint32_t ticket = load_shared<uint32_t>(shared);
    if (threadIdx.x == 0) {
        arguments.tickets[blockIdx.x] = ticket;
        wait_for_global_counter<64>(arguments.links_complete, ticket);
    }
    // One thread has seen the count; all see what was written before it.
    __syncthreads();
    const uint32_t other = (threadIdx.x + 1) % warp_size;
    arguments.links[(ticket + 1) * warp_size + threadIdx.x] =
        arguments.links[ticket * warp_size + other] * 3 + ticket;
    // And one counts for what all have written.
    __syncthreads();
    if (threadIdx.x == 0) {
        count_global(arguments.links_complete);
    }
}

constexpr int reduction_threads = 64;

extern "C" __global__ void __launch_bounds__(reduction_threads)
    global_reductions(const __grid_constant__ GlobalReductionArguments arguments) {
    const int number = static_cast<int>(blockIdx.x * reduction_threads + threadIdx.x);
    const int group = number % arguments.groups;
    const auto value = static_cast<float>(number);
    reduce_add_global(arguments.pairs + 2 * group, value, 1.0f);
    reduce_add_global(arguments.quadruples + 4 * group, value, 1.0f, -value, 2.0f);
}

}  // namespace backlight::kernel
