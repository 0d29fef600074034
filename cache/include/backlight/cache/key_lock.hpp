#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

namespace backlight::cache {

class File;

/// An advisory lock between processes, and between threads, over one key: a lock on a file beside
/// the entry, which the system frees when its holder ends, however it ends. Whoever does not get it
/// goes on without: the work is then done twice, and no call waits for ever. So that two holders
/// cannot wait for each other, no thread takes a second one while it has one.
class KeyLock {
  public:
    enum class State {
        held,
        /// Another held it all the time.
        timed_out,
        /// There can be no lock, as on a directory that cannot be written.
        unavailable
    };

    /// None, `unavailable`.
    KeyLock();
    /// Waits for the lock on the file `path`, which is made where it is missing.
    static KeyLock acquire(const std::filesystem::path& path,
                           std::chrono::milliseconds timeout) noexcept;
    ~KeyLock();
    KeyLock(KeyLock&& other) noexcept;
    KeyLock& operator=(KeyLock&& other) noexcept;

    State state() const noexcept { return state_; }
    bool held() const noexcept { return state_ == State::held; }

    /// Removes the file and frees the lock.
    void release() noexcept;

  private:
    State state_ = State::unavailable;
    std::unique_ptr<File> file_;
    std::filesystem::path path_;
};

}  // namespace backlight::cache
