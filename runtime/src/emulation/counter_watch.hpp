#pragma once

#include <cstdint>
#include <limits>
#include <mutex>

namespace backlight::emulation {

/// Whether anybody is left who could count what blocks wait for in global memory: of the blocks
/// that run at a time, on as many host threads, each tells when all that it could do is wait. For
/// any number of threads.
class CounterWatch {
  public:
    /// How often something has been counted. Grows after the counter has.
    std::uint64_t counted() const {
        const std::lock_guard lock(mutex_);
        return counted_;
    }
    void count() {
        const std::lock_guard lock(mutex_);
        ++counted_;
        waiting_ = 0;
    }

    /// Of a block: at which count it was last told to wait.
    using Told = std::uint64_t;
    static constexpr Told never = std::numeric_limits<Told>::max();

    /// The block has looked at what it waits for since `counted`, in vain. True if so have all that
    /// run, and nothing has been counted since.
    bool all_wait(std::uint64_t counted, Told& told) {
        const std::lock_guard lock(mutex_);
        if (counted != counted_) {
            return false;
        }
        waiting_ += told == counted ? 0 : 1;
        told = counted;
        return waiting_ == running_;
    }
    /// The block has ended, whatever it was told.
    void forget(Told told) {
        const std::lock_guard lock(mutex_);
        waiting_ -= told == counted_ ? 1 : 0;
    }

    /// How many blocks run at a time from now on: one, unless told.
    void set_running(int blocks) {
        const std::lock_guard lock(mutex_);
        running_ = blocks;
    }
    /// One less: a host thread has no more blocks to run.
    void leave() {
        const std::lock_guard lock(mutex_);
        --running_;
    }

  private:
    mutable std::mutex mutex_;
    std::uint64_t counted_ = 0;
    /// Blocks that were told to wait at this count.
    int waiting_ = 0;
    int running_ = 1;
};

}  // namespace backlight::emulation
