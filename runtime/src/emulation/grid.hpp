#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "emulation/bank_conflicts.hpp"
#include "emulation/counter_watch.hpp"
#include "emulation/device_memory.hpp"
#include "emulation/emulated_runtime.hpp"
#include "emulation/launch_queue.hpp"

namespace backlight::emulation {

/// Runs the grids of a stream one after the other, in overlap where programmatic dependent launch
/// allows it: a few blocks of a grid are held at their griddepcontrol.launch_dependents while a few
/// blocks of the next grid run as far as their griddepcontrol.wait.
class GridRunner {
  public:
    GridRunner(const EmulationOptions& options, const DeviceMemory& memory,
               BankConflicts* bank_conflicts);
    ~GridRunner();
    GridRunner(const GridRunner&) = delete;
    GridRunner& operator=(const GridRunner&) = delete;

    /// `next`: the launch after this one, where it may start early. Throws KernelFault.
    void run(const Launch& launch, const Launch* next);

  private:
    /// A block on a host thread of its own, that stops once and goes on when told.
    class HeldBlock {
      public:
        explicit HeldBlock(std::uint32_t block) : block_(block) {}
        ~HeldBlock() { finish(); }

        std::uint32_t block() const noexcept { return block_; }
        /// Runs `body` until it calls `hold` or ends.
        void start(std::function<void()> body);
        void hold();
        /// Lets the block go on, and waits until it has ended.
        void finish();

      private:
        std::uint32_t block_;
        std::thread thread_;
        std::mutex mutex_;
        std::condition_variable changed_;
        bool stopped_ = false;  // held, or ended
        bool released_ = false;
    };
    using HeldBlocks = std::vector<std::unique_ptr<HeldBlock>>;

    std::vector<std::uint32_t> block_order(const Launch& launch) const;
    /// `rank`: the block's place in the order of starting.
    void run_block(const Launch& launch, std::uint32_t block, std::size_t rank,
                   std::function<void()> wait_for_previous = {},
                   std::function<void()> allow_next = {});
    void run_blocks(const Launch& launch, const std::vector<std::uint32_t>& blocks);
    void note_failure(std::size_t rank);
    bool failed_before(std::size_t rank) const;
    /// Throws what the first block that failed threw.
    void require_success();

    const EmulationOptions& options_;
    const DeviceMemory& memory_;
    BankConflicts* bank_conflicts_;
    bool has_wgmma_;
    CounterWatch counters_;
    /// Blocks of the launch to come that have been started already.
    HeldBlocks started_early_;
    mutable std::mutex failure_mutex_;
    std::exception_ptr failure_;
    std::size_t failed_rank_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace backlight::emulation
