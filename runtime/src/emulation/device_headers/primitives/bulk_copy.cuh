// Bulk copies; see kernel_sources/primitives/bulk_copy.cuh.
#pragma once

#include "primitives/conversion.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

inline void bulk_load(uint32_t destination, const void* source, int bytes, uint32_t barrier,
                      emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_load(destination, source, bytes, barrier, site);
}

inline void bulk_store(void* destination, uint32_t source, int bytes,
                       emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_store(destination, source, bytes, site);
}

template <typename Number>
void bulk_reduce_add(void* destination, uint32_t source, int bytes,
                     emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_reduce_add(destination, source, bytes, element_type<Number>, site);
}

inline void bulk_commit(emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_commit(site);
}

template <int groups_pending>
void bulk_wait(emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_wait(groups_pending, false, site);
}

template <int groups_pending>
void bulk_wait_read(emulation::Site site = emulation::Site::here()) {
    emulation::machine->bulk_wait(groups_pending, true, site);
}

}  // namespace backlight::kernel
