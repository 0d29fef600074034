#include "emulation/happens_before.hpp"

#include <algorithm>

namespace backlight::emulation {

namespace {
constexpr std::size_t most_barriers = 64;
}

HappensBefore::HappensBefore(int threads)
    : clocks_(static_cast<std::size_t>(threads)), components_(static_cast<std::size_t>(threads)) {
    for (std::size_t thread = 0; thread < clocks_.size(); ++thread) {
        clocks_[thread].assign(clocks_.size() + most_barriers, 0);
        // Events are counted from 1: a clock of zeros knows of none.
        clocks_[thread][thread] = 1;
    }
}

std::uint16_t HappensBefore::add_component() {
    if (clocks_.empty() || components_ == clocks_.front().size()) {
        for (Clock& clock : clocks_) {
            clock.resize(clock.size() + most_barriers, 0);
        }
    }
    return static_cast<std::uint16_t>(components_++);
}

void HappensBefore::join(Clock& into, const Clock& from) {
    if (into.size() < from.size()) {
        into.resize(from.size(), 0);
    }
    for (std::size_t i = 0; i < from.size(); ++i) {
        into[i] = std::max(into[i], from[i]);
    }
}

void HappensBefore::add(Clock& into, Event event) {
    if (into.size() <= event.component) {
        into.resize(std::size_t{event.component} + 1, 0);
    }
    into[event.component] = std::max(into[event.component], event.count);
}

void HappensBefore::release(int thread, Clock& into) {
    const auto index = static_cast<std::size_t>(thread);
    join(into, clocks_[index]);
    ++clocks_[index][index];
}

void HappensBefore::acquire(int thread, const Clock& from) {
    join(clocks_[static_cast<std::size_t>(thread)], from);
}

void HappensBefore::synchronise(std::span<const int> threads) {
    joined_.clear();
    for (const int thread : threads) {
        join(joined_, clocks_[static_cast<std::size_t>(thread)]);
    }
    for (const int thread : threads) {
        const auto index = static_cast<std::size_t>(thread);
        std::copy(joined_.begin(), joined_.end(), clocks_[index].begin());
        ++clocks_[index][index];
    }
}

}  // namespace backlight::emulation
