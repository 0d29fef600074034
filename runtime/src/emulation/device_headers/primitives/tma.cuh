// Tensor copies; see kernel_sources/primitives/tma.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

inline void tma_load_1d(uint32_t destination, const void* tensor_map, int x, uint32_t barrier,
                        emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_load({tensor_map, destination, 1, {x}}, barrier, site);
}

inline void tma_load_2d(uint32_t destination, const void* tensor_map, int x, int y,
                        uint32_t barrier, emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_load({tensor_map, destination, 2, {x, y}}, barrier, site);
}

inline void tma_load_3d(uint32_t destination, const void* tensor_map, int x, int y, int z,
                        uint32_t barrier, emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_load({tensor_map, destination, 3, {x, y, z}}, barrier, site);
}

inline void tma_load_4d(uint32_t destination, const void* tensor_map, int x, int y, int z, int w,
                        uint32_t barrier, emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_load({tensor_map, destination, 4, {x, y, z, w}}, barrier, site);
}

inline void tma_load_5d(uint32_t destination, const void* tensor_map, int x, int y, int z, int w,
                        int v, uint32_t barrier, emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_load({tensor_map, destination, 5, {x, y, z, w, v}}, barrier, site);
}

inline void tma_store_1d(const void* tensor_map, int x, uint32_t source,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_store({tensor_map, source, 1, {x}}, site);
}

inline void tma_store_2d(const void* tensor_map, int x, int y, uint32_t source,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_store({tensor_map, source, 2, {x, y}}, site);
}

inline void tma_store_3d(const void* tensor_map, int x, int y, int z, uint32_t source,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_store({tensor_map, source, 3, {x, y, z}}, site);
}

inline void tma_store_4d(const void* tensor_map, int x, int y, int z, int w, uint32_t source,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_store({tensor_map, source, 4, {x, y, z, w}}, site);
}

inline void tma_store_5d(const void* tensor_map, int x, int y, int z, int w, int v, uint32_t source,
                         emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_store({tensor_map, source, 5, {x, y, z, w, v}}, site);
}

inline void tma_reduce_add_1d(const void* tensor_map, int x, uint32_t source,
                              emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_reduce_add({tensor_map, source, 1, {x}}, site);
}

inline void tma_reduce_add_2d(const void* tensor_map, int x, int y, uint32_t source,
                              emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_reduce_add({tensor_map, source, 2, {x, y}}, site);
}

inline void tma_reduce_add_3d(const void* tensor_map, int x, int y, int z, uint32_t source,
                              emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_reduce_add({tensor_map, source, 3, {x, y, z}}, site);
}

inline void tma_reduce_add_4d(const void* tensor_map, int x, int y, int z, int w, uint32_t source,
                              emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_reduce_add({tensor_map, source, 4, {x, y, z, w}}, site);
}

inline void tma_reduce_add_5d(const void* tensor_map, int x, int y, int z, int w, int v,
                              uint32_t source, emulation::Site site = emulation::Site::here()) {
    emulation::machine->tensor_reduce_add({tensor_map, source, 5, {x, y, z, w, v}}, site);
}

inline bool elect_one(emulation::Site site = emulation::Site::here()) {
    return emulation::machine->elect(0xffffffffu, site);
}

}  // namespace backlight::kernel
