// Plain loads and stores of shared memory by 32-bit shared address; 8-byte values are aligned to 8
// bytes, 16-byte values to 16.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

/// Address of an object in the shared window, as PTX wants it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void store_shared(uint32_t address, uint32_t value) {
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, uint2 value) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                 :
                 : "r"(address), "r"(value.x), "r"(value.y)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, uint4 value) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" : : "r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float2 value) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};"
                 :
                 : "r"(address), "f"(value.x), "f"(value.y)
                 : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t address, float4 value) {
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

/// Loads a uint32_t, uint2, uint4, float, float2 or float4.
template <typename Value>
__device__ __forceinline__ Value load_shared(uint32_t address);

template <>
__device__ __forceinline__ uint32_t load_shared<uint32_t>(uint32_t address) {
    uint32_t value;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
    return value;
}

template <>
__device__ __forceinline__ uint2 load_shared<uint2>(uint32_t address) {
    uint2 value;
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(value.x), "=r"(value.y)
                 : "r"(address)
                 : "memory");
    return value;
}

template <>
__device__ __forceinline__ uint4 load_shared<uint4>(uint32_t address) {
    uint4 value;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

template <>
__device__ __forceinline__ float load_shared<float>(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
    return value;
}

template <>
__device__ __forceinline__ float2 load_shared<float2>(uint32_t address) {
    float2 value;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                 : "=f"(value.x), "=f"(value.y)
                 : "r"(address)
                 : "memory");
    return value;
}

template <>
__device__ __forceinline__ float4 load_shared<float4>(uint32_t address) {
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address)
                 : "memory");
    return value;
}

}  // namespace backlight::kernel
