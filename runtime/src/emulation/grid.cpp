#include "emulation/grid.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "device/target.hpp"
#include "emulation/block.hpp"
#include "emulation/fault.hpp"
#include "emulation/random.hpp"

// AddressSanitizer's interface (sanitizer/asan_interface.h): null in a process without it.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): its names
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void* memory,
                                                       std::size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* memory,
                                                         std::size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace backlight::emulation {

namespace {

/// Of each grid, at most: enough to see what overlaps, few enough to cost little.
constexpr std::size_t most_held_blocks = 2;

/// The parts of a launch that a seed decides, besides its blocks.
constexpr std::uint64_t order_part = std::uint64_t{1} << 40;
constexpr std::uint64_t overlap_part = order_part + 1;

/// What a launch did not ask for of the largest shared memory that a block may have: plain accesses
/// to it are found by AddressSanitizer, where that is part of the process.
class UnusedSharedMemory {
  public:
    UnusedSharedMemory(std::byte* shared_memory, std::size_t used)
        : memory_(shared_memory + used), bytes_(KernelObject::shared_memory_bytes - used) {
        if (__asan_poison_memory_region != nullptr) {
            __asan_poison_memory_region(memory_, bytes_);
        }
    }
    ~UnusedSharedMemory() {
        if (__asan_unpoison_memory_region != nullptr) {
            __asan_unpoison_memory_region(memory_, bytes_);
        }
    }
    UnusedSharedMemory(const UnusedSharedMemory&) = delete;
    UnusedSharedMemory& operator=(const UnusedSharedMemory&) = delete;

  private:
    std::byte* memory_;
    std::size_t bytes_;
};

}  // namespace

void GridRunner::HeldBlock::start(std::function<void()> body) {
    thread_ = std::thread([this, body = std::move(body)] {
        body();
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_; });
}

void GridRunner::HeldBlock::hold() {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return released_; });
}

void GridRunner::HeldBlock::finish() {
    {
        const std::lock_guard lock(mutex_);
        released_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) {
        thread_.join();
    }
}

GridRunner::GridRunner(const EmulationOptions& options, const DeviceMemory& memory,
                       BankConflicts* bank_conflicts)
    : options_(options),
      memory_(memory),
      bank_conflicts_(bank_conflicts),
      has_wgmma_(device::target_by_name(options.target).compute_major == 9) {}

GridRunner::~GridRunner() {
    started_early_.clear();
}

std::vector<std::uint32_t> GridRunner::block_order(const Launch& launch) const {
    std::vector<std::uint32_t> blocks(launch.shape.blocks);
    std::iota(blocks.begin(), blocks.end(), 0U);
    if (options_.grid_order == GridOrder::descending) {
        std::ranges::reverse(blocks);
    } else if (options_.grid_order == GridOrder::random) {
        Random random(derived_seed(derived_seed(options_.seed, launch.number), order_part));
        for (std::size_t i = blocks.size(); i > 1; --i) {
            std::swap(blocks[i - 1], blocks[random.below(static_cast<std::uint32_t>(i))]);
        }
    }
    return blocks;
}

void GridRunner::note_failure(std::size_t rank) {
    const std::lock_guard lock(failure_mutex_);
    // The first in the order of starting, so that the same seed tells the same fault however the
    // host's threads were served.
    if (rank < failed_rank_) {
        failure_ = std::current_exception();
        failed_rank_ = rank;
    }
}

bool GridRunner::failed_before(std::size_t rank) const {
    const std::lock_guard lock(failure_mutex_);
    return failed_rank_ < rank;
}

void GridRunner::require_success() {
    if (failure_ != nullptr) {
        started_early_.clear();
        std::rethrow_exception(failure_);
    }
}

void GridRunner::run_block(const Launch& launch, std::uint32_t block, std::size_t rank,
                           std::function<void()> wait_for_previous,
                           std::function<void()> allow_next) {
    static thread_local StackPool stacks;
    std::byte* const shared_memory = launch.kernel->shared_memory();
    const UnusedSharedMemory unused(shared_memory, launch.shape.dynamic_shared_bytes);
    try {
        Block running({.run_thread = launch.kernel->run_thread(),
                       .arguments = launch.arguments.get(),
                       .block = block,
                       .blocks = launch.shape.blocks,
                       .threads = launch.shape.threads,
                       .shared_memory = {shared_memory, launch.shape.dynamic_shared_bytes},
                       .seed = derived_seed(derived_seed(options_.seed, launch.number), block),
                       .memory = &memory_,
                       .has_wgmma = has_wgmma_,
                       .bank_conflicts = bank_conflicts_,
                       .counters = &counters_,
                       .given_up = [this, rank] { return failed_before(rank); },
                       .wait_for_previous = std::move(wait_for_previous),
                       .allow_next = std::move(allow_next)},
                      stacks);
        running.run();
    } catch (const FaultFound& fault) {
        try {
            throw KernelFault(
                fault.kind,
                fmt::format("{} in {}, block {} of {}, launch {} with seed {}: {}",
                            to_string(fault.kind), launch.kernel->entry(), block,
                            launch.shape.blocks, launch.number, options_.seed, fault.message));
        } catch (const KernelFault&) {
            note_failure(rank);
        }
    } catch (const std::exception&) {
        note_failure(rank);
    } catch (...) {
        try {
            throw Error(ErrorCode::kernel_fault,
                        fmt::format("{} threw something that is no std::exception",
                                    launch.kernel->entry()));
        } catch (const Error&) {
            note_failure(rank);
        }
    }
}

void GridRunner::run_blocks(const Launch& launch, const std::vector<std::uint32_t>& blocks) {
    std::size_t workers = options_.host_threads > 0
                              ? static_cast<std::size_t>(options_.host_threads)
                              : std::max(1U, std::thread::hardware_concurrency());
    // A stack is two mappings of memory, and Linux gives a process 65,530 of them by default.
    constexpr std::size_t most_stacks = 30000;
    workers = std::min(workers, std::max<std::size_t>(1, most_stacks / launch.shape.threads));
    workers = std::min(workers, blocks.size());
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < blocks.size(); i = next++) {
            const std::size_t rank = most_held_blocks + i;
            if (failed_before(rank)) {
                break;
            }
            run_block(launch, blocks[i], rank);
        }
        counters_.leave();
    };
    counters_.set_running(static_cast<int>(workers));
    std::vector<std::thread> others;
    for (std::size_t i = 1; i < workers; ++i) {
        others.emplace_back(work);
    }
    work();
    for (std::thread& other : others) {
        other.join();
    }
    counters_.set_running(1);
}

void GridRunner::run(const Launch& launch, const Launch* next) {
    // Those that came early go on: the launch before is complete.
    HeldBlocks early = std::exchange(started_early_, {});
    std::vector<std::uint32_t> blocks = block_order(launch);
    for (const auto& block : early) {
        block->finish();
        std::erase(blocks, block->block());
    }
    require_success();

    Random random(derived_seed(derived_seed(options_.seed, launch.number), overlap_part));
    HeldBlocks stragglers;
    if (next != nullptr && random.one_in(2)) {
        while (stragglers.size() < most_held_blocks && !blocks.empty()) {
            auto held = std::make_unique<HeldBlock>(blocks.back());
            blocks.pop_back();
            HeldBlock& block = *held;
            const std::size_t rank = stragglers.size();
            block.start([&, rank, this] {
                run_block(launch, block.block(), rank, {}, [&block] { block.hold(); });
            });
            stragglers.push_back(std::move(held));
        }
    }
    run_blocks(launch, blocks);
    if (!stragglers.empty() && failure_ == nullptr) {
        const std::vector<std::uint32_t> order = block_order(*next);
        for (std::size_t i = 0; i < std::min(most_held_blocks, order.size()); ++i) {
            auto held = std::make_unique<HeldBlock>(order[i]);
            HeldBlock& block = *held;
            block.start([next, &block, this] {
                run_block(*next, block.block(), 0, [&block] { block.hold(); }, {});
            });
            started_early_.push_back(std::move(held));
        }
    }
    for (const auto& block : stragglers) {
        block->finish();
    }
    require_success();
}

}  // namespace backlight::emulation
