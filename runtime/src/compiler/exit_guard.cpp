#include "compiler/exit_guard.hpp"

#include <pthread.h>

#include <atomic>
#include <cstdlib>

#include "backlight/error.hpp"

namespace backlight::compiler {

namespace {

std::atomic<bool> is_ending = false;
std::atomic<int> running = 0;
/// Of this thread; a signal's handler may end the process in the middle of one.
thread_local int own_calls = 0;

void leave() noexcept {
    --own_calls;
    --running;
    running.notify_all();
}

void wait_for_calls() {
    is_ending = true;
    for (int calls = running; calls > own_calls; calls = running) {
        running.wait(calls);
    }
}

/// A process that was forked off has none of the other threads.
void forget_other_threads() {
    running = own_calls;
}

}  // namespace

ExitGuard::ExitGuard() {
    [[maybe_unused]] static const int registered =
        ::pthread_atfork(nullptr, nullptr, forget_other_threads);
    ++own_calls;
    ++running;
    if (is_ending) {
        leave();
        throw Error(ErrorCode::compile_failed,
                    "nothing is compiled any more: the process is ending, and NVRTC with it");
    }
}

ExitGuard::~ExitGuard() {
    leave();
}

void ExitGuard::wait_at_exit() {
    // Where it cannot be registered, the process ends as it would have.
    std::atexit(wait_for_calls);
}

}  // namespace backlight::compiler
