#pragma once

#include <csignal>

namespace backlight::tool {

/// While it lives, the first SIGINT or SIGTERM asks the work to end where it is whole, and the
/// second ends the process as usual. One at a time.
class InterruptGuard {
  public:
    InterruptGuard() noexcept;
    ~InterruptGuard();
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

    /// Since the guard was made.
    static bool requested() noexcept;

  private:
    struct sigaction interrupt_ {};
    struct sigaction terminate_ {};
};

}  // namespace backlight::tool
