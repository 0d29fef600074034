// Fences between the proxies; see kernel_sources/primitives/proxy_fence.cuh.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

inline void fence_shared_before_async_proxy(emulation::Site site = emulation::Site::here()) {
    emulation::machine->proxy_fence(emulation::Proxies::shared, site);
}

inline void fence_global_before_async_proxy(emulation::Site site = emulation::Site::here()) {
    emulation::machine->proxy_fence(emulation::Proxies::global, site);
}

inline void fence_before_async_proxy(emulation::Site site = emulation::Site::here()) {
    emulation::machine->proxy_fence(emulation::Proxies::all, site);
}

}  // namespace backlight::kernel
