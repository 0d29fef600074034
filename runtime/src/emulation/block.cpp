#include "emulation/block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <thread>
#include <utility>

namespace backlight::emulation {

thread_local Block* Block::current_ = nullptr;

Block::Block(const BlockLaunch& launch, StackPool& stacks)
    : launch_(launch),
      stacks_(stacks),
      random_(launch.seed),
      order_(static_cast<int>(launch.threads)),
      memory_(launch.shared_memory, order_),
      threads_(launch.threads),
      warps_((launch.threads + warp_lanes - 1) / warp_lanes),
      policy_(static_cast<Policy>(random_.below(3))),
      previous_ended_(!launch.wait_for_previous) {
    // Some schedules hold threads up only where they must wait, some at every turn; in some, copies
    // come as late as they can.
    constexpr std::array<std::uint32_t, 3> yields = {0, 64, 6};
    constexpr std::array<std::uint32_t, 3> early_copies = {0, 200, 10};
    yields_ = yields[random_.below(3)];
    early_copies_ = early_copies[random_.below(3)];

    // All that a multiprocessor has, divided evenly: what a launch gives each thread at most.
    constexpr int registers_of_multiprocessor = 65536;
    constexpr int most_registers = 255;
    const int whole_warps = static_cast<int>(warps_.size());
    const int each = registers_of_multiprocessor / (whole_warps * warp_lanes) / 8 * 8;
    for (Warp& warp : warps_) {
        warp.registers = std::min(each, most_registers);
        warp.priority = random_.below(1U << 16);
    }
    for (std::size_t index = 0; index < threads_.size(); ++index) {
        Thread& thread = threads_[index];
        thread.position = {.thread = static_cast<unsigned>(index),
                           .block = launch.block,
                           .threads = launch.threads,
                           .blocks = launch.blocks};
        thread.fiber = std::make_unique<Fiber>(stacks_, [this, index] { thread_main(index); });
        warps_[index / warp_lanes].live |= 1U << index % warp_lanes;
        wake(index);
    }
    live_ = threads_.size();
}

Block::~Block() = default;

void Block::thread_main(std::size_t index) {
    try {
        // Of a block that is given up, some threads have not even begun.
        if (abandoned_) {
            throw Abandoned{};
        }
        launch_.run_thread(launch_.arguments);
        require_copies_finished(threads_[index]);
        leave_collectives(index);
    } catch (const FaultFound& fault) {
        if (!fault_) {
            fault_ = with_repeated_wait(fault, threads_[index]);
        }
    } catch (const Abandoned&) {
        // The block is being given up.
    } catch (...) {
        foreign_ = std::current_exception();
    }
    threads_[index].finished = true;
    warps_[index / warp_lanes].live &= ~(1U << index % warp_lanes);
    --live_;
    complete_barriers_without_ended_threads();
}

FaultFound Block::with_repeated_wait(FaultFound fault, const Thread& thread) {
    switch (fault.kind) {
        case FaultKind::deadlock:
        case FaultKind::data_race:
        case FaultKind::uninitialised_read:
        case FaultKind::copy_in_flight:
        case FaultKind::source_overwritten:
        case FaultKind::missed_phase:
        case FaultKind::arrival_overflow:
            if (!thread.repeated_wait.empty()) {
                return {FaultKind::wrong_parity,
                        fmt::format("{}. What followed: {}", thread.repeated_wait, fault.message)};
            }
            fault.message += thread.first_phase_wait;
            return fault;
        default:
            return fault;
    }
}

void Block::run() {
    Block* const outer = std::exchange(current_, this);
    while (live_ > 0 && !fault_ && foreign_ == nullptr) {
        try {
            if (!pending_loads_.empty() && random_.one_in(early_copies_)) {
                complete_load(random_.below(static_cast<std::uint32_t>(pending_loads_.size())));
            }
            if (ready_count_ == 0) {
                if (!make_progress()) {
                    report_deadlock();
                }
                continue;
            }
        } catch (const FaultFound& fault) {
            fault_ = fault;
            break;
        }
        running_ = pick();
        warps_[running_ / warp_lanes].ready &= ~(1U << running_ % warp_lanes);
        --ready_count_;
        threads_[running_].fiber->resume();
    }
    if (!fault_ && foreign_ == nullptr) {
        try {
            if (!pending_loads_.empty()) {
                throw FaultFound{
                    FaultKind::unfinished_copies,
                    fmt::format("the block ended while {} copies into its shared memory were under "
                                "way; the first was asked for at {}",
                                pending_loads_.size(), to_string(pending_loads_.front().site))};
            }
            finish_bulk_writes();
            count_incomplete_accesses();
        } catch (const FaultFound& fault) {
            fault_ = fault;
        }
    }
    abandon();
    launch_.counters->forget(told_to_wait_);
    current_ = outer;
    if (foreign_ != nullptr) {
        std::rethrow_exception(foreign_);
    }
    if (fault_) {
        throw FaultFound(*fault_);
    }
}

void Block::abandon() {
    abandoned_ = true;
    for (std::size_t index = 0; index < threads_.size() && live_ > 0; ++index) {
        if (!threads_[index].finished) {
            running_ = index;
            threads_[index].fiber->resume();
        }
    }
}

std::size_t Block::pick() {
    // Every so often another warp becomes the one that is served first.
    if (policy_ == Policy::priorities && random_.one_in(256)) {
        warps_[random_.below(static_cast<std::uint32_t>(warps_.size()))].priority =
            random_.below(1U << 16);
    }
    std::size_t chosen = warps_.size();
    if (policy_ == Policy::priorities) {
        for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
            if (warps_[warp].ready != 0 &&
                (chosen == warps_.size() || warps_[warp].priority > warps_[chosen].priority)) {
                chosen = warp;
            }
        }
    } else {
        std::uint32_t skip = random_.below(static_cast<std::uint32_t>(warps_.size()));
        for (std::size_t warp = skip; chosen == warps_.size(); warp = (warp + 1) % warps_.size()) {
            if (warps_[warp].ready != 0) {
                chosen = warp;
            }
        }
    }
    std::uint32_t ready = warps_[chosen].ready;
    if (policy_ != Policy::lane_order) {
        std::uint32_t skip = random_.below(static_cast<std::uint32_t>(std::popcount(ready)));
        for (; skip > 0; --skip) {
            ready &= ready - 1;
        }
    }
    return chosen * warp_lanes + static_cast<std::size_t>(std::countr_zero(ready));
}

void Block::wait(Waiting why, Site site) {
    Thread& thread = running();
    thread.waiting = why;
    thread.site = site;
    thread.fiber->suspend();
    if (abandoned_) {
        throw Abandoned{};
    }
}

void Block::wake(std::size_t index) {
    Warp& warp = warps_[index / warp_lanes];
    const std::uint32_t bit = 1U << index % warp_lanes;
    if ((warp.ready & bit) == 0) {
        warp.ready |= bit;
        ++ready_count_;
    }
    threads_[index].waiting = Waiting::nothing;
}

void Block::maybe_yield() {
    if (random_.one_in(yields_)) {
        const std::size_t self = running_;
        wake(self);
        wait(Waiting::nothing, {});
    }
}

bool Block::make_progress() {
    const bool waits_for_previous = std::ranges::any_of(threads_, [](const Thread& thread) {
        return !thread.finished && thread.waiting == Waiting::previous_kernel;
    });
    if (!pending_loads_.empty() && (!waits_for_previous || random_.one_in(2))) {
        complete_load(random_.below(static_cast<std::uint32_t>(pending_loads_.size())));
        return true;
    }
    if (waits_for_previous) {
        launch_.wait_for_previous();
        previous_ended_ = true;
        for (std::size_t index = 0; index < threads_.size(); ++index) {
            if (!threads_[index].finished && threads_[index].waiting == Waiting::previous_kernel) {
                wake(index);
            }
        }
        return true;
    }
    if (look_at_counters()) {
        return true;
    }
    // Hardware's try_wait comes back after a while, and the kernel may do something else then.
    constexpr int most_refusals = 1000;
    bool refused = false;
    for (std::size_t index = 0; index < threads_.size(); ++index) {
        Thread& thread = threads_[index];
        if (!thread.finished && thread.waiting == Waiting::mbarrier && thread.may_give_up &&
            refusals_ < most_refusals) {
            thread.gave_up = true;
            wake(index);
            refused = true;
        }
    }
    refusals_ += refused ? 1 : 0;
    return refused;
}

bool Block::look_at_counters() {
    const auto waits = [](const Thread& thread) {
        return !thread.finished && thread.waiting == Waiting::global_counter;
    };
    if (std::ranges::none_of(threads_, waits) || (launch_.given_up && launch_.given_up())) {
        return false;
    }
    const std::uint64_t counted = launch_.counters->counted();
    if (counters_seen_ == counted) {
        std::this_thread::yield();  // It is for other blocks to count.
        return !launch_.counters->all_wait(counted, told_to_wait_);
    }
    for (std::size_t index = 0; index < threads_.size(); ++index) {
        if (waits(threads_[index])) {
            wake(index);
        }
    }
    counters_seen_ = counted;
    return true;
}

std::string Block::waiting_for(const Thread& thread) const {
    switch (thread.waiting) {
        case Waiting::nothing:
            return "can go on";
        case Waiting::block_barrier: {
            const NamedBarrier& barrier = named_barriers_[thread.awaited_barrier];
            return fmt::format("waits at barrier {} ({} of {} threads have arrived)",
                               thread.awaited_barrier, barrier.arrived.size(),
                               barrier.expected == 0 ? threads_alive() : barrier.expected);
        }
        case Waiting::collective:
            return "waits for the other threads of its warp or warpgroup";
        case Waiting::mbarrier: {
            const MBarrier& barrier = mbarriers_.at(thread.awaited_barrier);
            return fmt::format(
                "waits for parity {} of the mbarrier at {:#x} initialised at {} "
                "(phase {} is under way, {} arrivals and {} bytes missing, {} copies "
                "in flight)",
                thread.awaited_parity, thread.awaited_barrier, to_string(barrier.initialised_at()),
                barrier.phase(), barrier.pending_arrivals(), barrier.pending_bytes(),
                barrier.copies_in_flight());
        }
        case Waiting::registers:
            return fmt::format("waits for {} registers a thread (the block has {} free)",
                               thread.awaited_registers, free_registers_);
        case Waiting::previous_kernel:
            return "waits for the previous kernel";
        case Waiting::global_counter:
            return "waits for a counter in global memory, and no block is left to count";
    }
    return {};
}

std::string Block::thread_states() const {
    // Neighbours in the same state share a line.
    std::string text;
    std::size_t first = 0;
    const auto state = [this](std::size_t index) {
        const Thread& thread = threads_[index];
        return thread.finished
                   ? std::string("has ended")
                   : fmt::format("{} at {}", waiting_for(thread), to_string(thread.site));
    };
    while (first < threads_.size()) {
        const std::string here = state(first);
        std::size_t last = first;
        while (last + 1 < threads_.size() && state(last + 1) == here) {
            ++last;
        }
        text += first == last ? fmt::format("\n  thread {} {}", first, here)
                              : fmt::format("\n  threads {}-{}: {}", first, last, here);
        first = last + 1;
    }
    return text;
}

void Block::report_deadlock() const {
    // A thread that waits for a count keeps the others of its warp waiting, as it may.
    if (std::ranges::count(threads_, Waiting::global_counter, &Thread::waiting) > 0) {
        throw FaultFound{FaultKind::deadlock,
                         fmt::format("nobody is left who could count what a thread waits for:{}",
                                     thread_states())};
    }
    for (const Warp& warp : warps_) {
        for (const auto& pending : warp.collectives) {
            throw FaultFound{
                FaultKind::divergent_collective,
                fmt::format(
                    "{}: {} was reached by {} of the threads that it is for, and the others "
                    "wait elsewhere:{}",
                    to_string(pending->site), pending->name, pending->arrived.count(),
                    thread_states())};
        }
    }
    for (std::size_t warp = 0; warp < warps_.size(); ++warp) {
        std::uint32_t at_barrier = 0;
        for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
            const std::size_t index = warp * warp_lanes + lane;
            if (index < threads_.size() && !threads_[index].finished &&
                threads_[index].waiting == Waiting::block_barrier) {
                at_barrier |= 1U << lane;
            }
        }
        if (at_barrier != 0 && at_barrier != warps_[warp].live) {
            throw FaultFound{FaultKind::divergent_collective,
                             fmt::format("a barrier of the block was reached by part of warp {}:{}",
                                         warp, thread_states())};
        }
    }
    for (const Thread& thread : threads_) {
        if (thread.finished || thread.waiting != Waiting::mbarrier) {
            continue;
        }
        const MBarrier& barrier = mbarriers_.at(thread.awaited_barrier);
        if (barrier.pending_arrivals() == 0 && barrier.copies_in_flight() == 0) {
            throw FaultFound{
                FaultKind::transaction_mismatch,
                fmt::format("the mbarrier at {:#x} initialised at {} has {} bytes announced that "
                            "no copy in "
                            "flight is to bring: {} were announced than came:{}",
                            thread.awaited_barrier, to_string(barrier.initialised_at()),
                            barrier.pending_bytes(), barrier.pending_bytes() < 0 ? "fewer" : "more",
                            thread_states())};
        }
    }
    const FaultFound deadlock{
        FaultKind::deadlock,
        fmt::format("no thread can go on, and no copy is under way:{}", thread_states())};
    for (const Thread& thread : threads_) {
        if (!thread.finished && !thread.repeated_wait.empty()) {
            throw with_repeated_wait(deadlock, thread);
        }
    }
    throw FaultFound(deadlock);
}

}  // namespace backlight::emulation
