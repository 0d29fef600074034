// Pointers to global memory that lie in shared memory, of 8 bytes.
#pragma once

#include "primitives/shared_memory.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

template <typename Value>
__device__ __forceinline__ void store_shared_pointer(uint32_t address, Value* pointer) {
    const auto bits = reinterpret_cast<uint64_t>(pointer);
    store_shared(address, uint2{static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)});
}

template <typename Value>
__device__ __forceinline__ Value* load_shared_pointer(uint32_t address) {
    const auto bits = load_shared<uint2>(address);
    return reinterpret_cast<Value*>(static_cast<uint64_t>(bits.y) << 32 | bits.x);
}

}  // namespace backlight::kernel
