#pragma once

namespace backlight::cache {

/// The kinds of system calls that the cache makes.
enum class SystemCall {
    open,
    status,
    read,
    write,
    synchronise,
    close,
    rename,
    remove,
    make_directory,
    list,
    lock,
    touch
};

/// Asked before each system call, from any thread: zero lets the call be made; any other value is
/// the `errno` that the call fails with, without being made.
using FaultInjector = int (*)(SystemCall) noexcept;

/// For tests of what a disk may do that cannot be arranged on the machine at hand. Null, as at the
/// start, injects nothing. For the whole process.
void inject_faults(FaultInjector injector) noexcept;

}  // namespace backlight::cache
