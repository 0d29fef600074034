// Tensor loads, stores and reductions of every rank, with shared memory seen as raw bytes.
#include "arguments/attention_backward.h"
#include "primitives/bulk_copy.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

constexpr int threads = 128;
constexpr int vector_bytes = 16;
constexpr int barrier_offset = 32 * 1024;

/// Shared memory as the host wants it at first, and ready for the TMA unit.
__device__ __forceinline__ void fill_shared(uint32_t shared, const TensorCopyArguments& arguments) {
    const int vectors = arguments.shared_bytes / vector_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += threads) {
        store_shared(shared + i * vector_bytes,
                     static_cast<const uint4*>(arguments.shared_before)[i]);
    }
    fence_shared_before_async_proxy();
    __syncthreads();
}

__device__ __forceinline__ void load(uint32_t destination, const TensorCopyArguments& arguments,
                                     uint32_t barrier) {
    const int(&c)[5] = arguments.coordinates;
    switch (arguments.rank) {
        case 1:
            tma_load_1d(destination, &arguments.map, c[0], barrier);
            break;
        case 2:
            tma_load_2d(destination, &arguments.map, c[0], c[1], barrier);
            break;
        case 3:
            tma_load_3d(destination, &arguments.map, c[0], c[1], c[2], barrier);
            break;
        case 4:
            tma_load_4d(destination, &arguments.map, c[0], c[1], c[2], c[3], barrier);
            break;
        default:
            tma_load_5d(destination, &arguments.map, c[0], c[1], c[2], c[3], c[4], barrier);
            break;
    }
}

__device__ __forceinline__ void store(const TensorCopyArguments& arguments, uint32_t source) {
    const int(&c)[5] = arguments.coordinates;
    switch (arguments.rank) {
        case 1:
            tma_store_1d(&arguments.map, c[0], source);
            break;
        case 2:
            tma_store_2d(&arguments.map, c[0], c[1], source);
            break;
        case 3:
            tma_store_3d(&arguments.map, c[0], c[1], c[2], source);
            break;
        case 4:
            tma_store_4d(&arguments.map, c[0], c[1], c[2], c[3], source);
            break;
        default:
            tma_store_5d(&arguments.map, c[0], c[1], c[2], c[3], c[4], source);
            break;
    }
}

__device__ __forceinline__ void reduce_add(const TensorCopyArguments& arguments, uint32_t source) {
    const int(&c)[5] = arguments.coordinates;
    switch (arguments.rank) {
        case 1:
            tma_reduce_add_1d(&arguments.map, c[0], source);
            break;
        case 2:
            tma_reduce_add_2d(&arguments.map, c[0], c[1], source);
            break;
        case 3:
            tma_reduce_add_3d(&arguments.map, c[0], c[1], c[2], source);
            break;
        case 4:
            tma_reduce_add_4d(&arguments.map, c[0], c[1], c[2], c[3], source);
            break;
        default:
            tma_reduce_add_5d(&arguments.map, c[0], c[1], c[2], c[3], c[4], source);
            break;
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    tensor_load(const __grid_constant__ TensorCopyArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const uint32_t barrier = shared + barrier_offset;
    if (threadIdx.x == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
    }
    fill_shared(shared, arguments);
    if (threadIdx.x < warp_size && elect_one()) {
        mbarrier_arrive_expect_bytes(barrier, arguments.transaction_bytes);
        load(shared, arguments, barrier);
    }
    mbarrier_wait(barrier, 0);
    const int vectors = arguments.shared_bytes / vector_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < vectors; i += threads) {
        static_cast<uint4*>(arguments.shared_after)[i] =
            load_shared<uint4>(shared + i * vector_bytes);
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    tensor_store(const __grid_constant__ TensorCopyArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    fill_shared(shared, arguments);
    if (threadIdx.x < warp_size && elect_one()) {
        store(arguments, shared);
        bulk_commit();
        bulk_wait<0>();
    }
}

extern "C" __global__ void __launch_bounds__(threads)
    tensor_reduce_add(const __grid_constant__ TensorCopyArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    fill_shared(shared, arguments);
    if (threadIdx.x < warp_size && elect_one()) {
        reduce_add(arguments, shared);
        bulk_commit();
        bulk_wait<0>();
    }
}

}  // namespace backlight::kernel
