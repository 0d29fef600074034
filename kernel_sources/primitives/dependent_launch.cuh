// Programmatic dependent launch: a kernel that was launched with the attribute may start while the
// one before it in the stream still runs. Both instructions do nothing in an ordinary launch.
#pragma once

namespace backlight::kernel {

/// Waits until every grid this one depends on has completed and its writes are visible.
__device__ __forceinline__ void wait_for_previous_kernel() {
    asm volatile("griddepcontrol.wait;" : : : "memory");
}

/// Lets the next kernel of the stream start once every block has said so or ended.
__device__ __forceinline__ void allow_next_kernel() {
    asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}

}  // namespace backlight::kernel
