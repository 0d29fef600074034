#include "backlight/cache/key_lock.hpp"

#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "file.hpp"

namespace backlight::cache {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds first_pause{1};
constexpr std::chrono::milliseconds longest_pause{20};
/// Files that turn out to be removed cost little time, so no wait ends by a few of them.
constexpr int fewest_tries = 100;
/// Longer waits are cut to it, so that no deadline lies beyond what the clock counts.
constexpr std::chrono::hours longest_wait{24};

/// Waits for the lock of an open file. Asked for again and again, as flock(2) knows no timeout.
KeyLock::State wait_for(const File& file, Clock::time_point deadline) {
    auto pause = first_pause;
    for (;;) {
        const std::optional<bool> locked = file.try_lock();
        if (!locked) {
            return KeyLock::State::unavailable;
        }
        if (*locked) {
            return KeyLock::State::held;
        }
        const auto now = Clock::now();
        if (now >= deadline) {
            return KeyLock::State::timed_out;
        }
        std::this_thread::sleep_until(std::min(deadline, now + pause));
        pause = std::min(2 * pause, longest_pause);
    }
}

}  // namespace

KeyLock::KeyLock() = default;

KeyLock KeyLock::acquire(const std::filesystem::path& path,
                         std::chrono::milliseconds timeout) noexcept {
    KeyLock lock;
    try {
        const auto deadline =
            Clock::now() + std::min<std::chrono::milliseconds>(timeout, longest_wait);
        for (int tries = 0; tries < fewest_tries || Clock::now() < deadline; ++tries) {
            auto file = std::make_unique<File>(File::open(path, O_RDWR | O_CREAT, 0600));
            if (!file->opened()) {
                return {};
            }
            lock.state_ = wait_for(*file, deadline);
            if (!lock.held()) {
                return lock;
            }
            // The one before may have removed the file before it freed the lock: then this lock
            // is on a file that nobody will find.
            if (file->is_at(path)) {
                lock.file_ = std::move(file);
                lock.path_ = path;
                return lock;
            }
        }
        // A disk that never shows the file at its place.
        lock.state_ = State::timed_out;
        return lock;
    } catch (const std::exception&) {
        return {};
    }
}

KeyLock::~KeyLock() {
    release();
}

KeyLock::KeyLock(KeyLock&& other) noexcept
    : state_(std::exchange(other.state_, State::unavailable)),
      file_(std::move(other.file_)),
      path_(std::move(other.path_)) {}

KeyLock& KeyLock::operator=(KeyLock&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(file_, other.file_);
    std::swap(path_, other.path_);
    return *this;
}

void KeyLock::release() noexcept {
    if (file_ != nullptr) {
        // Removed while it is held, so it can be nobody else's.
        remove_file(path_);
        file_->unlock();
        file_.reset();
    }
    state_ = State::unavailable;
}

}  // namespace backlight::cache
