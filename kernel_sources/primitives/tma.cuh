// Bulk tensor copies by the TMA unit: boxes of a tensor that a tensor map describes. Coordinates
// are those of the box's first element, fastest first, and may lie out of the tensor's bounds:
// there, loads bring zeros, and stores and reductions do nothing. The first coordinate is a
// multiple of 16 bytes, a negative one too; the device stops at any other.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

// Loads count the bytes of the whole box on the barrier. They are written for a destination in the
// executing block (.shared::cta): the cluster form costs a check and a call a copy on sm_120.

__device__ __forceinline__ void tma_load_1d(uint32_t destination, const void* tensor_map, int x,
                                            uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.1d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2}], [%3];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load_2d(uint32_t destination, const void* tensor_map, int x,
                                            int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load_3d(uint32_t destination, const void* tensor_map, int x,
                                            int y, int z, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4}], [%5];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load_4d(uint32_t destination, const void* tensor_map, int x,
                                            int y, int z, int w, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5}], [%6];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void tma_load_5d(uint32_t destination, const void* tensor_map, int x,
                                            int y, int z, int w, int v, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cta.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
        :
        : "r"(destination), "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(barrier)
        : "memory");
}

// Stores, and reductions that add the box to the tensor, each sum rounded to the tensor's type. The
// issuing thread waits for them as for bulk copies (bulk_commit, bulk_wait). A box may end beyond
// the tensor, and what lies there is left out; it must not start before it, as that of a load may:
// the hardware stops there with an illegal instruction.

__device__ __forceinline__ void tma_store_1d(const void* tensor_map, int x, uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group "
        "[%0, {%1}], [%2];"
        :
        : "l"(tensor_map), "r"(x), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_store_2d(const void* tensor_map, int x, int y,
                                             uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
        "[%0, {%1, %2}], [%3];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_store_3d(const void* tensor_map, int x, int y, int z,
                                             uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group "
        "[%0, {%1, %2, %3}], [%4];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_store_4d(const void* tensor_map, int x, int y, int z, int w,
                                             uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_store_5d(const void* tensor_map, int x, int y, int z, int w,
                                             int v, uint32_t source) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group "
        "[%0, {%1, %2, %3, %4, %5}], [%6];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_reduce_add_1d(const void* tensor_map, int x, uint32_t source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1}], [%2];"
        :
        : "l"(tensor_map), "r"(x), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_reduce_add_2d(const void* tensor_map, int x, int y,
                                                  uint32_t source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2}], [%3];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_reduce_add_3d(const void* tensor_map, int x, int y, int z,
                                                  uint32_t source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3}], [%4];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_reduce_add_4d(const void* tensor_map, int x, int y, int z,
                                                  int w, uint32_t source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3, %4}], [%5];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(source)
        : "memory");
}

__device__ __forceinline__ void tma_reduce_add_5d(const void* tensor_map, int x, int y, int z,
                                                  int w, int v, uint32_t source) {
    asm volatile(
        "cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group "
        "[%0, {%1, %2, %3, %4, %5}], [%6];"
        :
        : "l"(tensor_map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v), "r"(source)
        : "memory");
}

/// True in one lane of a converged warp: the one that speaks for it.
__device__ __forceinline__ bool elect_one() {
    uint32_t elected;
    asm volatile(
        "{\n"
        ".reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, chosen;\n"
        "}"
        : "=r"(elected));
    return elected != 0;
}

}  // namespace backlight::kernel
