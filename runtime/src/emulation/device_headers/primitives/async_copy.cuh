// cp.async; see kernel_sources/primitives/async_copy.cuh.
#pragma once

#include "primitives/types.cuh"

namespace backlight::kernel {

template <int bytes>
void async_copy(uint32_t destination, const void* source, int source_bytes = bytes,
                emulation::Site site = emulation::Site::here()) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
    emulation::machine->async_copy(destination, source, bytes, source_bytes, site);
}

inline void async_copy_commit(emulation::Site site = emulation::Site::here()) {
    emulation::machine->async_copy_commit(site);
}

template <int groups_pending>
void async_copy_wait(emulation::Site site = emulation::Site::here()) {
    emulation::machine->async_copy_wait(groups_pending, site);
}

}  // namespace backlight::kernel
