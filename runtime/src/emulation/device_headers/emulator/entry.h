// The way into a kernel object: comes after the kernel's source, whose entry BACKLIGHT_ENTRY names.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

/// Dynamic shared memory: what `extern __shared__ unsigned char shared_memory[]` means in a kernel,
/// as large as a block may have on any device. The pages beyond what a launch asks for stay unused.
alignas(1024) thread_local unsigned char shared_memory[227 * 1024];

}  // namespace backlight::kernel

namespace backlight::emulation {

/// Calls a kernel with its one argument structure.
template <typename Arguments>
void call(void (*kernel)(Arguments), const void* arguments) {
    kernel(*static_cast<const Arguments*>(arguments));
}
template <typename Arguments>
constexpr unsigned long long size_of_arguments(void (*)(Arguments)) {
    return sizeof(Arguments);
}

}  // namespace backlight::emulation

#define BACKLIGHT_EXPORT extern "C" __attribute__((visibility("default")))

/// Tells one object from another.
BACKLIGHT_EXPORT const char backlight_identity[] = BACKLIGHT_IDENTITY;

BACKLIGHT_EXPORT void backlight_set_machine(const backlight::emulation::Machine* machine) {
    backlight::emulation::machine = machine;
}
BACKLIGHT_EXPORT unsigned long long backlight_arguments_bytes() {
    return backlight::emulation::size_of_arguments(&backlight::kernel::BACKLIGHT_ENTRY);
}
/// Of the calling host thread.
BACKLIGHT_EXPORT unsigned char* backlight_shared_memory() {
    return backlight::kernel::shared_memory;
}
BACKLIGHT_EXPORT void backlight_run_thread(const void* arguments) {
    backlight::emulation::call(&backlight::kernel::BACKLIGHT_ENTRY, arguments);
}
