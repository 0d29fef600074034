#pragma once

namespace backlight::compiler {

/// A call of NVRTC, which must not be under way while the process ends: NVRTC's own destructors,
/// which run before those of objects that are older than it, take from under the call what it uses.
/// The exit waits for the calls that have begun, and none begins after.
class ExitGuard {
  public:
    /// Throws `compile_failed` where the process is ending.
    ExitGuard();
    ~ExitGuard();
    ExitGuard(const ExitGuard&) = delete;
    ExitGuard& operator=(const ExitGuard&) = delete;

    /// Makes the exit wait before it runs any destructor that has been registered so far. May be
    /// asked for again when NVRTC may have registered more.
    static void wait_at_exit();
};

}  // namespace backlight::compiler
