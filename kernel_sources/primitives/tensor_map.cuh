// Changes to tensor maps on the device. A map is changed in shared memory and published to global
// memory, where it takes effect for whoever acquires it: maps are read by a proxy of their own,
// which ordinary barriers do not order.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Another tensor for the map at that shared address, which is aligned to 128 bytes; `address` is a
/// multiple of 16 bytes.
__device__ __forceinline__ void tensor_map_set_address(uint32_t map, const void* address) {
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;"
                 :
                 : "r"(map), "l"(address)
                 : "memory");
}

/// Another extent, above 0, of a dimension; the fastest is 0.
template <int dimension>
__device__ __forceinline__ void tensor_map_set_extent(uint32_t map, int extent) {
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], %1, %2;"
                 :
                 : "r"(map), "n"(dimension), "r"(extent)
                 : "memory");
}

/// Copies a map from shared to global memory, both aligned to 128 bytes, and releases it to the
/// device. By all lanes of a warp.
__device__ __forceinline__ void publish_tensor_map(void* destination, uint32_t map) {
    __syncwarp();
    asm volatile(
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%0], [%1], 128;"
        :
        : "l"(destination), "r"(map)
        : "memory");
}

/// Before the first use of a published map, by every thread that uses it; ordinary synchronisation
/// with who has published it comes before.
__device__ __forceinline__ void acquire_tensor_map(const void* map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" : : "l"(map) : "memory");
}

}  // namespace backlight::kernel
