// Barriers of a block and of a warp, mbarriers, fences, dependent launches.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "emulation/block.hpp"
#include "emulation/block_collective.hpp"

namespace backlight::emulation {

int Block::threads_alive() const noexcept {
    return static_cast<int>(live_);
}

void Block::complete_barriers_without_ended_threads() {
    for (std::size_t number = 0; number < named_barriers_.size(); ++number) {
        const NamedBarrier& barrier = named_barriers_[number];
        if (barrier.expected == 0 && !barrier.arrived.empty() && barrier.arrived.size() == live_) {
            complete_barrier(number);
        }
    }
}

void Block::block_barrier(int number, int threads, BarrierUse use, Site site) {
    maybe_yield();
    if (number < 0 || number >= static_cast<int>(named_barriers_.size())) {
        throw FaultFound{FaultKind::barrier_misuse,
                         fmt::format("{}: barrier {}: there are barriers 0 to {}", to_string(site),
                                     number, named_barriers_.size() - 1)};
    }
    if (threads < 0 || threads % warp_lanes != 0) {
        throw FaultFound{FaultKind::barrier_misuse,
                         fmt::format("{}: barrier {} for {} threads: it must be whole warps",
                                     to_string(site), number, threads)};
    }
    NamedBarrier& barrier = named_barriers_[static_cast<std::size_t>(number)];
    if (barrier.arrived.empty()) {
        barrier.expected = threads;
        barrier.site = site;
    } else if (barrier.expected != threads) {
        throw FaultFound{
            FaultKind::barrier_misuse,
            fmt::format(
                "{}: thread {} comes to barrier {} for {} threads, others came at {} for {}",
                to_string(site), running_, number, threads, to_string(barrier.site),
                barrier.expected)};
    }
    const std::uint32_t bit = 1U << number;
    if ((running().arrived_at & bit) != 0) {
        throw FaultFound{
            FaultKind::arrival_overflow,
            fmt::format("{}: thread {} arrives twice at barrier {} before it completes",
                        to_string(site), running_, number)};
    }
    running().arrived_at |= bit;
    barrier.arrived.push_back(running_index());
    // Not what a thread does after it has arrived.
    order_.release(running_index(), barrier.known);
    if (use == BarrierUse::synchronise) {
        barrier.waiting.push_back(running_);
    }
    const int expected = threads == 0 ? threads_alive() : threads;
    if (static_cast<int>(barrier.arrived.size()) < expected) {
        if (use == BarrierUse::synchronise) {
            running().awaited_barrier = static_cast<std::uint32_t>(number);
            wait(Waiting::block_barrier, site);
        }
        return;
    }
    complete_barrier(static_cast<std::size_t>(number));
}

void Block::complete_barrier(std::size_t number) {
    NamedBarrier& barrier = named_barriers_[number];
    // Those who wait learn what all who arrived have done.
    for (const int thread : barrier.arrived) {
        threads_[static_cast<std::size_t>(thread)].arrived_at &= ~(1U << number);
    }
    for (const std::size_t thread : barrier.waiting) {
        order_.acquire(static_cast<int>(thread), barrier.known);
        if (thread != running_) {
            wake(thread);
        }
    }
    barrier = {};
    refusals_ = 0;
}

void Block::warp_barrier(std::uint32_t mask, Site site) {
    collective(warp_barrier_name, warp_lanes, mask, site, nullptr, [this](Collective& all) {
        std::array<int, warp_lanes> lanes{};
        std::size_t count = 0;
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            if (all.arrived[lane]) {
                lanes[count++] = static_cast<int>(all.first + lane);
            }
        }
        order_.synchronise(std::span(lanes).first(count));
    });
}

MBarrier& Block::mbarrier_at(std::uint32_t address, Site site) {
    const auto found = mbarriers_.find(address);
    if (found == mbarriers_.end()) {
        throw FaultFound{
            FaultKind::barrier_misuse,
            fmt::format("{}: thread {} uses an mbarrier at shared address {:#x}, where "
                        "none was initialised",
                        to_string(site), running_, address)};
    }
    found->second.require_usable(running_index(), site);
    return found->second;
}

void Block::mbarrier_initialise(std::uint32_t address, int arrivals, Site site) {
    maybe_yield();
    memory_.write(running_index(), address, 8, 8, site);
    constexpr int most_arrivals = (1 << 20) - 1;
    if (arrivals < 1 || arrivals > most_arrivals) {
        throw FaultFound{FaultKind::barrier_misuse,
                         fmt::format("{}: an mbarrier for {} arrivals: it must be 1 … {}",
                                     to_string(site), arrivals, most_arrivals)};
    }
    memory_.reserve(address, 8);
    const auto [place, fresh] =
        mbarriers_.try_emplace(address, arrivals, order_, running_index(), site);
    if (!fresh) {
        throw FaultFound{FaultKind::barrier_misuse,
                         fmt::format("{}: thread {} initialises the mbarrier at shared address "
                                     "{:#x}, which was initialised at {}",
                                     to_string(site), running_, address,
                                     to_string(place->second.initialised_at()))};
    }
}

void Block::mbarrier_initialisation_fence(Site /*site*/) {
    for (auto& [address, barrier] : mbarriers_) {
        if (barrier.initialising_thread() == running_index()) {
            barrier.make_visible();
        }
    }
}

void Block::mbarrier_arrive(std::uint32_t address, int bytes, Site site) {
    maybe_yield();
    if (mbarrier_at(address, site).arrive(running_index(), bytes, site)) {
        wake_waiting_for(address);
    }
}

void Block::wake_waiting_for(std::uint32_t address) {
    const MBarrier& barrier = mbarriers_.at(address);
    for (std::size_t index = 0; index < threads_.size(); ++index) {
        const Thread& thread = threads_[index];
        if (!thread.finished && thread.waiting == Waiting::mbarrier &&
            thread.awaited_barrier == address && barrier.passes(thread.awaited_parity)) {
            wake(index);
        }
    }
    refusals_ = 0;
}

void Block::mbarrier_wait(std::uint32_t address, int parity, Site site) {
    running().may_give_up = false;
    mbarrier_wait_or_give_up(address, parity, site);
}

bool Block::mbarrier_try_wait(std::uint32_t address, int parity, Site site) {
    running().may_give_up = true;
    return mbarrier_wait_or_give_up(address, parity, site);
}

bool Block::mbarrier_wait_or_give_up(std::uint32_t address, int parity, Site site) {
    maybe_yield();
    MBarrier& barrier = mbarrier_at(address, site);
    if (parity != 0 && parity != 1) {
        throw FaultFound{FaultKind::wrong_parity,
                         fmt::format("{}: thread {} waits for parity {} of an mbarrier: it must be "
                                     "0 or 1",
                                     to_string(site), running_, parity)};
    }
    if (!barrier.passes(parity)) {
        Thread& thread = running();
        thread.awaited_barrier = address;
        thread.awaited_parity = parity;
        thread.awaited_phase = barrier.phase();
        wait(Waiting::mbarrier, site);
        if (std::exchange(thread.gave_up, false)) {
            return false;
        }
        // Hardware asks again and again; a phase that came and went between is not seen.
        if (barrier.phase() > thread.awaited_phase + 1) {
            throw FaultFound{
                FaultKind::missed_phase,
                fmt::format("{}: thread {} waits for phase {} of the mbarrier initialised at {}, "
                            "and phase {} completed before it looked again",
                            to_string(site), running_, thread.awaited_phase,
                            to_string(barrier.initialised_at()), thread.awaited_phase + 1)};
        }
    }
    Thread& passed = running();
    passed.repeated_wait.clear();
    passed.first_phase_wait.clear();
    if (barrier.phase() == 0) {
        passed.first_phase_wait = fmt::format(
            "; its last wait, at {}, passed at once: parity {} of an mbarrier that is in "
            "its first phase",
            to_string(site), parity);
    }
    if (barrier.pass(running_index())) {
        passed.repeated_wait = fmt::format(
            "{}: thread {} waits for parity {} of the mbarrier initialised at {} and passes at "
            "once, for phase {}, which it had already seen complete",
            to_string(site), running_, parity, to_string(barrier.initialised_at()),
            barrier.phase() - 1);
    }
    return true;
}

void Block::proxy_fence(Proxies proxies, Site site) {
    if (proxies != Proxies::global) {
        memory_.fence(running_index());
        // The fence comes after the lane's reads: a read is no longer late once all lanes are past.
        Warp& warp = warps_[warp_of_running()];
        for (UnboundRead& read : warp.unbound) {
            read.fenced_lanes |= 1U << running_ % warp_lanes;
        }
        std::erase_if(warp.unbound, [&](const UnboundRead& read) {
            return read.overwritten.empty() && (~read.fenced_lanes & warp.live) == 0;
        });
        mbarrier_initialisation_fence(site);
    }
    maybe_yield();
}

void Block::wait_for_previous_kernel(Site site) {
    if (!previous_ended_) {
        wait(Waiting::previous_kernel, site);
    }
}

void Block::allow_next_kernel(Site /*site*/) {
    if (!next_allowed_) {
        next_allowed_ = true;
        if (launch_.allow_next) {
            launch_.allow_next();
        }
    }
    maybe_yield();
}

}  // namespace backlight::emulation
