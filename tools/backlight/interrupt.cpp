#include "interrupt.hpp"

#include <atomic>

namespace backlight::tool {

namespace {

// Lock-free, as a signal handler needs it.
std::atomic<bool> was_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void request(int /*signal*/) {
    was_requested = true;
}

}  // namespace

InterruptGuard::InterruptGuard() noexcept {
    was_requested = false;
    struct sigaction action {};
    action.sa_handler = request;
    // The next one finds the usual action again.
    action.sa_flags = static_cast<int>(SA_RESETHAND | static_cast<unsigned>(SA_RESTART));
    sigaction(SIGINT, &action, &interrupt_);
    sigaction(SIGTERM, &action, &terminate_);
}

InterruptGuard::~InterruptGuard() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &terminate_, nullptr);
}

bool InterruptGuard::requested() noexcept {
    return was_requested;
}

}  // namespace backlight::tool
