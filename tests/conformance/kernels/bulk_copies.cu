// Bulk copies, bulk reductions and cp.async.
#include "arguments/attention_backward.h"
#include "primitives/async_copy.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

constexpr int threads = 128;
constexpr int barrier_offset = 16 * 1024;

__device__ __forceinline__ void reduce_add(void* sums, uint32_t source, int bytes, int type) {
    if (type == 0) {
        bulk_reduce_add<bf16>(sums, source, bytes);
    } else if (type == 1) {
        bulk_reduce_add<fp16>(sums, source, bytes);
    } else {
        bulk_reduce_add<float>(sums, source, bytes);
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    bulk_round_trip(const __grid_constant__ BulkCopyArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const uint32_t barrier = shared + barrier_offset;
    if (threadIdx.x == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
        mbarrier_arrive_expect_bytes(barrier, arguments.bytes);
        bulk_load(shared, arguments.source, arguments.bytes, barrier);
        mbarrier_wait(barrier, 0);
        // Two groups: when the first has read its source, the second may not have.
        bulk_store(arguments.copy, shared, arguments.bytes);
        bulk_commit();
        reduce_add(arguments.sums, shared, arguments.bytes, arguments.type);
        bulk_commit();
        bulk_wait_read<1>();
        bulk_wait_read<0>();
    }
    __syncthreads();
    // Both have read shared memory: what is written over it must not be seen in the results.
    for (int i = static_cast<int>(threadIdx.x) * 4; i < arguments.bytes; i += threads * 4) {
        store_shared(shared + i, 0xffffffffu);
    }
    if (threadIdx.x == 0) {
        bulk_wait<0>();
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    bulk_relay(const __grid_constant__ BulkRelayArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const uint32_t barrier = shared + barrier_offset;
    const int words = arguments.words;
    const int bytes = words * 4;
    const int thread = static_cast<int>(threadIdx.x);
    uint32_t* scratch = arguments.scratch + static_cast<int64_t>(blockIdx.x) * words;
    uint32_t* out = arguments.out + static_cast<int64_t>(blockIdx.x) * words;

    // What a bulk load reads was written by plain stores to global memory.
    for (int i = thread; i < words; i += threads) {
        scratch[i] = blockIdx.x * 65536u + static_cast<uint32_t>(i);
    }
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
    }
    fence_global_before_async_proxy();
    __syncthreads();
    if (thread == 0) {
        mbarrier_arrive_expect_bytes(barrier, bytes);
        bulk_load(shared, scratch, bytes, barrier);
    }
    mbarrier_wait(barrier, 0);

    // What a bulk store reads was written by plain stores to shared memory, over what a bulk load
    // brought.
    for (int i = thread; i < words; i += threads) {
        const uint32_t value = load_shared<uint32_t>(shared + i * 4);
        store_shared(shared + i * 4, value + 0x10000000u);
    }
    fence_before_async_proxy();
    __syncthreads();
    if (thread == 0) {
        bulk_store(out, shared, bytes);
        bulk_commit();
        bulk_wait<0>();
    }
}

/// The smaller of a lane's number and a size: how many bytes it reads.
__device__ __forceinline__ int bytes_to_read(int lane, int size) {
    return lane < size ? lane : size;
}

extern "C" __global__ void __launch_bounds__(warp_size)
    async_copies(const __grid_constant__ AsyncCopyArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    constexpr int place_bytes = 16;
    constexpr int area_bytes = warp_size * place_bytes;
    const uint32_t shared = shared_address(shared_memory);
    const int lane = static_cast<int>(threadIdx.x);
    const uint32_t place = shared + lane * place_bytes;
    const auto* source = static_cast<const unsigned char*>(arguments.source) + lane * place_bytes;
    for (int area = 0; area < 3; ++area) {
        store_shared(place + area * area_bytes,
                     uint4{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu});
    }

    async_copy<4>(place, source, bytes_to_read(lane, 4));
    async_copy<8>(place + area_bytes, source, bytes_to_read(lane, 8));
    async_copy_commit();
    async_copy<16>(place + 2 * area_bytes, source, bytes_to_read(lane, 16));
    async_copy_commit();

    auto* out = static_cast<uint4*>(arguments.out);
    async_copy_wait<1>();
    out[lane] = load_shared<uint4>(place);
    out[warp_size + lane] = load_shared<uint4>(place + area_bytes);
    async_copy_wait<0>();
    __syncwarp();
    // Another lane's copy is visible too, after both have waited.
    const int other = lane ^ 1;
    out[2 * warp_size + other] = load_shared<uint4>(shared + 2 * area_bytes + other * place_bytes);
}

}  // namespace backlight::kernel
