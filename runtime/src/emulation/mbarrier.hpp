#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "emulation/fault.hpp"
#include "emulation/happens_before.hpp"

namespace backlight::emulation {

/// An mbarrier object: counts arrivals and, for copies, bytes; phases alternate in parity. Throws
/// FaultFound where it is misused.
class MBarrier {
  public:
    MBarrier(int arrivals, HappensBefore& order, int thread, Site site);

    /// Number of the phase that is under way; completed phases are those before.
    std::int64_t phase() const noexcept { return phase_; }
    int pending_arrivals() const noexcept { return pending_arrivals_; }
    std::int64_t pending_bytes() const noexcept { return pending_bytes_; }
    int copies_in_flight() const noexcept { return copies_in_flight_; }
    Site initialised_at() const noexcept { return site_; }

    /// The initialising thread has made the barrier visible to the asynchronous proxy.
    void make_visible() noexcept { visible_ = true; }
    int initialising_thread() const noexcept { return initialising_thread_; }
    void require_usable(int thread, Site site) const;
    void require_visible(Site site) const;

    /// Each returns true if it completed the phase.
    bool arrive(int thread, std::int64_t bytes, Site site);
    void begin_copy() noexcept { ++copies_in_flight_; }
    bool finish_copy(std::int64_t bytes);
    /// What a copy that finishes now is known by.
    HappensBefore::Event copy_completion() const noexcept {
        return {component_, static_cast<std::uint32_t>(phase_ + 1)};
    }

    /// Whether a wait for the parity passes.
    bool passes(int parity) const noexcept { return (phase_ & 1) != parity; }
    /// The thread has passed a wait: it knows of the completed phase and of what came before. True
    /// if it had already seen that phase complete: allowed, and what a wrong parity looks like.
    bool pass(int thread);

  private:
    bool complete_if_due();

    HappensBefore& order_;
    int initialising_thread_;
    HappensBefore::Event initialised_;
    Site site_;
    bool visible_ = false;
    int expected_arrivals_;
    int pending_arrivals_;
    std::int64_t pending_bytes_ = 0;
    int copies_in_flight_ = 0;
    std::int64_t phase_ = 0;
    std::uint16_t component_;
    HappensBefore::Clock arriving_;
    HappensBefore::Clock completed_;
    /// The phase that each thread saw complete last.
    std::vector<std::optional<std::int64_t>> seen_;
};

}  // namespace backlight::emulation
