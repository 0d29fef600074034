#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace backlight::emulation {

/// Vector clocks of a block: which events each thread knows to have happened (Lamport 1978; in the
/// form of Flanagan and Freund's FastTrack, 2009). A component counts for each thread, and one more
/// for each mbarrier: its phases stand for the copies that they completed.
class HappensBefore {
  public:
    using Clock = std::vector<std::uint32_t>;

    /// An event: the count of its component when it happened.
    struct Event {
        std::uint16_t component = 0;
        std::uint32_t count = 0;
    };

    explicit HappensBefore(int threads);

    int threads() const noexcept { return static_cast<int>(clocks_.size()); }

    /// A component for an mbarrier.
    std::uint16_t add_component();

    Event now(int thread) const noexcept {
        const auto index = static_cast<std::size_t>(thread);
        return {static_cast<std::uint16_t>(thread), clocks_[index][index]};
    }

    /// Whether the thread knows of the event.
    bool knows(int thread, Event event) const noexcept {
        return clocks_[static_cast<std::size_t>(thread)][event.component] >= event.count;
    }

    /// The thread's knowledge goes into `into`; what the thread does later does not.
    void release(int thread, Clock& into);
    void acquire(int thread, const Clock& from);
    void learn(int thread, Event event) { add(clocks_[static_cast<std::size_t>(thread)], event); }
    static void add(Clock& into, Event event);
    static void join(Clock& into, const Clock& from);

    /// Every thread learns what any of them knows.
    void synchronise(std::span<const int> threads);

  private:
    std::vector<Clock> clocks_;
    std::size_t components_;
    Clock joined_;
};

}  // namespace backlight::emulation
