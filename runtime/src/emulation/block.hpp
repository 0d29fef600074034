#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "emulation/bank_conflicts.hpp"
#include "emulation/counter_watch.hpp"
#include "emulation/device_headers/emulator/machine.h"
#include "emulation/device_memory.hpp"
#include "emulation/fault.hpp"
#include "emulation/fiber.hpp"
#include "emulation/happens_before.hpp"
#include "emulation/matrix_descriptor.hpp"
#include "emulation/mbarrier.hpp"
#include "emulation/random.hpp"
#include "emulation/shared_memory.hpp"
#include "emulation/tensor_copy.hpp"

namespace backlight::emulation {

/// What a block needs of its launch.
struct BlockLaunch {
    void (*run_thread)(const void* arguments) = nullptr;
    const void* arguments = nullptr;
    std::uint32_t block = 0;
    std::uint32_t blocks = 1;
    std::uint32_t threads = 1;
    /// Of the host thread that runs the block.
    std::span<std::byte> shared_memory;
    std::uint64_t seed = 0;
    const DeviceMemory* memory = nullptr;
    /// The device has wgmma.
    bool has_wgmma = true;
    /// Where bank conflicts are counted; null: nowhere.
    BankConflicts* bank_conflicts = nullptr;
    /// Of all blocks that run at the same time.
    CounterWatch* counters = nullptr;
    /// A block that began before this one has failed: what it counts does not come. Empty: none.
    std::function<bool()> given_up = {};
    /// Returns when the kernel before this one has ended. Empty: it has.
    std::function<void()> wait_for_previous = {};
    /// The block's first griddepcontrol.launch_dependents; may hold it up. Empty: nothing waits.
    std::function<void()> allow_next = {};
};

/// Thrown within the fibers of a block that is given up, to unwind them.
struct Abandoned {};

/// A thread block while it runs: a fiber for each thread, on the host thread that calls `run`. A
/// seed decides which thread goes on wherever one may be held up, and when copies take effect.
///
/// Its public calls are those of Machine, by the thread that runs. They are spread over several
/// files: block.cpp (running), block_barriers.cpp, block_warp.cpp, block_wgmma.cpp,
/// block_copies.cpp, block_tensor_maps.cpp.
class Block {
  public:
    Block(const BlockLaunch& launch, StackPool& stacks);
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    /// Throws FaultFound if a thread does what it must not, or what a kernel threw.
    void run();

    /// The block that the calling host thread runs.
    static Block& current() noexcept { return *current_; }

    const Position* position() const noexcept { return &running().position; }

    void block_barrier(int barrier, int threads, BarrierUse use, Site site);
    void warp_barrier(std::uint32_t mask, Site site);
    void mbarrier_initialise(std::uint32_t address, int arrivals, Site site);
    void mbarrier_initialisation_fence(Site site);
    void mbarrier_arrive(std::uint32_t address, int bytes, Site site);
    void mbarrier_wait(std::uint32_t address, int parity, Site site);
    bool mbarrier_try_wait(std::uint32_t address, int parity, Site site);
    void proxy_fence(Proxies proxies, Site site);
    void wait_for_previous_kernel(Site site);
    void allow_next_kernel(Site site);

    std::uint32_t shuffle(std::uint32_t mask, std::uint32_t value, int source_lane, Site site);
    std::uint32_t ballot(std::uint32_t mask, bool predicate, Site site);
    bool elect(std::uint32_t mask, Site site);
    void set_registers(int registers, bool increase, Site site);
    void store_shared(std::uint32_t address, const void* data, int bytes, Site site);
    void load_shared(std::uint32_t address, void* data, int bytes, Site site);
    void ldmatrix(std::uint32_t address, int matrices, bool transposed, Register* fragment,
                  Site site);
    void stmatrix(std::uint32_t address, int matrices, bool transposed,
                  const std::uint32_t* fragment, Site site);
    std::uint32_t shared_address(const void* pointer, Site site) const;
    void mma(ElementType type, Register* c, const Register* a, const Register* b0,
             const Register* b1, Site site);
    void read_register(Register& used);
    void write_register(Register& used);

    void wgmma(const WarpgroupProduct& product, Site site);
    void wgmma_fence(Site site);
    void wgmma_commit(Site site);
    void wgmma_wait(int groups_pending, Site site);
    std::uint32_t wgmma_fences() const noexcept { return running().wgmma_fences; }

    void tensor_load(const TensorCopy& copy, std::uint32_t barrier, Site site);
    void tensor_write(const TensorCopy& copy, bool reduce, Site site);
    void bulk_load(std::uint32_t destination, const void* source, int bytes, std::uint32_t barrier,
                   Site site);
    void bulk_write(void* destination, std::uint32_t source, int bytes,
                    std::optional<ElementType> reduce, Site site);
    void bulk_commit(Site site);
    void bulk_wait(int groups_pending, bool read, Site site);
    void async_copy(std::uint32_t destination, const void* source, int bytes, int source_bytes,
                    Site site);
    void async_copy_commit(Site site);
    void async_copy_wait(int groups_pending, Site site);
    void set_tensor_map_address(std::uint32_t map, const void* address, Site site);
    void set_tensor_map_extent(std::uint32_t map, int dimension, int extent, Site site);
    void publish_tensor_map(void* destination, std::uint32_t map, Site site);
    void acquire_tensor_map(const void* map, Site site);
    void reduce_add_global(float* address, const float* values, int count, Site site);
    unsigned add_global_counter(unsigned* counter, Site site);
    /// Lets other threads, and other blocks, come forward: the caller may be waiting for them.
    unsigned load_global_counter(const unsigned* counter, Site site);
    /// Returns what the counter has reached. Other threads of the block go on meanwhile, and other
    /// blocks, if they run at the same time.
    unsigned wait_for_global_counter(const unsigned* counter, unsigned value, Site site);

  private:
    static constexpr int warp_lanes = 32;
    static constexpr int warpgroup_threads = 128;
    static constexpr std::uint32_t whole_warp = 0xffffffffU;
    static constexpr const char* warp_barrier_name = "bar.warp.sync";
    static constexpr const char* shuffle_name = "shfl.sync";
    static constexpr const char* vote_name = "vote.sync";
    /// Of an 8×8 matrix of ldmatrix and stmatrix.
    static constexpr std::uint32_t matrix_row_bytes = 16;

    struct Collective;

    // --- Threads ---------------------------------------------------------------------------------

    enum class Waiting {
        nothing,
        block_barrier,
        collective,
        mbarrier,
        registers,
        previous_kernel,
        global_counter,
    };

    /// A copy from shared to global memory that a thread has asked for.
    struct BulkWrite {
        std::vector<CopyPiece> pieces;
        std::optional<ElementType> reduce;
        std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> source_versions;
        std::vector<std::byte> data;  // of the pieces, once read
        bool source_read = false;
        bool written = false;
        Site site;
    };
    struct AsyncCopy {
        std::uint32_t destination;
        const std::byte* source;
        std::uint32_t bytes;
        std::uint32_t source_bytes;
    };
    struct Thread {
        Position position{};
        std::unique_ptr<Fiber> fiber;
        bool finished = false;
        Waiting waiting = Waiting::nothing;
        Site site{};
        /// Bits of the barriers of the block at which the thread counts as arrived.
        std::uint32_t arrived_at = 0;
        std::uint32_t awaited_barrier = 0;
        int awaited_parity = 0;
        std::int64_t awaited_phase = 0;
        int awaited_registers = 0;
        /// Where the last mbarrier wait passed for a phase seen before; empty: it did not.
        std::string repeated_wait;
        /// The same for a wait that passed because no phase had completed yet, as a producer's
        /// first wait does: told beside a fault.
        std::string first_phase_wait;
        /// It waits for an mbarrier by mbarrier.try_wait, and may be told that it waits in vain.
        bool may_give_up = false;
        bool gave_up = false;
        /// A collective that the thread is to execute, because who should have come last has ended.
        Collective* due_collective = nullptr;

        std::uint32_t wgmma_fences = 0;
        /// Numbers of the last products of each committed group, and of the group being formed.
        std::vector<std::uint32_t> wgmma_groups;
        std::uint32_t wgmma_uncommitted = 0;
        std::uint32_t wgmma_done = 0;

        std::vector<BulkWrite> bulk_uncommitted;
        std::vector<std::vector<BulkWrite>> bulk_groups;
        std::vector<AsyncCopy> async_uncommitted;
        std::vector<std::vector<AsyncCopy>> async_groups;
        /// Of those that kernels have published.
        std::vector<const void*> tensor_maps_acquired;
    };

    Thread& running() noexcept { return threads_[running_]; }
    const Thread& running() const noexcept { return threads_[running_]; }
    int running_index() const noexcept { return static_cast<int>(running_); }
    std::size_t warp_of_running() const noexcept { return running_ / warp_lanes; }

    void thread_main(std::size_t index);
    /// Lets others run until the thread is woken.
    void wait(Waiting why, Site site);
    void wake(std::size_t index);
    /// Lets others run, sometimes.
    void maybe_yield();
    std::size_t pick();
    /// When no thread can go on: lets something happen that frees one. False if there is nothing.
    bool make_progress();
    /// Lets the threads that wait for counters of global memory look again; false where there are
    /// none, or nobody is left who could count.
    bool look_at_counters();
    void abandon();
    [[noreturn]] void report_deadlock() const;
    /// The fault, or wrong_parity where that is what led the thread there.
    static FaultFound with_repeated_wait(FaultFound fault, const Thread& thread);
    std::string thread_states() const;
    std::string waiting_for(const Thread& thread) const;

    // --- Collectives -----------------------------------------------------------------------------

    /// An instruction that all lanes of a warp, or all threads of a warpgroup, execute together.
    struct Collective {
        const char* name = nullptr;
        Site site{};
        std::uint32_t mask = 0;  // of each warp
        std::size_t first = 0;   // thread
        std::size_t size = 0;
        /// Lanes of the mask that have ended are not waited for (votes, shuffles, bar.warp.sync).
        bool without_ended = false;
        std::bitset<warpgroup_threads> arrived;
        std::array<void*, warpgroup_threads> payloads{};
    };
    /// Brings the payload; the last thread to arrive runs `execute` with those of all.
    template <typename Execute>
    void collective(const char* name, std::size_t size, std::uint32_t mask, Site site,
                    void* payload, Execute execute);
    /// Threads that a collective waits for: with some instructions, not those that have ended.
    std::size_t expected_by(const Collective& collective) const;
    Collective* join_collective(const char* name, std::size_t size, std::uint32_t mask, Site site,
                                void* payload);
    void finish_collective(Collective& collective);
    /// A thread has ended: what waited for it goes on without it, or is a fault.
    void leave_collectives(std::size_t thread);

    // --- Warps -----------------------------------------------------------------------------------

    /// An ldmatrix whose read of shared memory may still be to come, as far as this program says:
    /// nothing has used what it fills.
    struct UnboundRead {
        std::uint32_t number;
        /// The first product that takes a fragment of it; 0: none yet.
        std::uint32_t consumer = 0;
        std::uint32_t fenced_lanes = 0;
        std::vector<std::uint32_t> rows;
        Site site;
        /// The report for whoever uses what it fills: a copy may have come first.
        std::string overwritten = {};
    };
    /// Lanes come to a plain access one by one: gathered by how often each has come to it.
    struct LaneAccesses {
        Site site;
        std::uint32_t bytes;
        std::array<std::uint32_t, warp_lanes> executions{};
        /// By execution, of each lane, in whatever order the lanes come.
        std::map<std::uint32_t, std::map<std::size_t, std::uint32_t>> addresses;
    };
    /// Counts the accesses that the lanes of a warp make as one.
    void count_bank_conflicts(const LaneAccesses& accesses,
                              const std::map<std::size_t, std::uint32_t>& by_lane) const;
    struct Warp {
        std::uint32_t ready = 0;
        std::uint32_t live = 0;
        std::uint32_t loads = 0;
        std::uint32_t products = 0;
        std::uint32_t priority = 0;
        /// Of each thread.
        int registers = 0;
        std::vector<UnboundRead> unbound;
        std::vector<std::unique_ptr<Collective>> collectives;
        std::vector<LaneAccesses> plain_accesses;
        // Of the warpgroup, kept by its first warp.
        std::uint32_t warpgroup_products = 0;
        /// Of the vector clocks: counts the products that have ended.
        std::optional<std::uint16_t> warpgroup_component;
    };
    enum class Operand { a, b };
    void execute_wgmma(Collective& all, Site site);
    /// A valid operand of a product: what is read of it is checked and kept in mind.
    MatrixDescriptor source_of_wgmma(std::uint64_t bits, Major major, int outer, Operand operand,
                                     std::size_t first_thread, HappensBefore::Event end, Site site);
    /// Reads of shared memory are over; what a copy may have brought before is a fault.
    template <typename IsBound>
    void bind_reads(Warp& warp, IsBound is_bound);
    void bind_load(Warp& warp, std::uint32_t number);
    void bind_product(Warp& warp, std::uint32_t number);
    void note_consumer(Warp& warp, const Register& operand, std::uint32_t product);
    /// Reads of the range that may still be to come may find what the copy brings.
    void overwrite_unbound_reads(std::uint32_t address, std::uint32_t bytes, Site site);
    void count_plain_access(std::uint32_t address, std::uint32_t bytes, Site site);
    void count_incomplete_accesses();

    // --- Barriers --------------------------------------------------------------------------------

    struct NamedBarrier {
        int expected = 0;
        std::vector<int> arrived;    // all
        HappensBefore::Clock known;  // to them, when they arrived
        std::vector<std::size_t> waiting;
        Site site{};
    };
    MBarrier& mbarrier_at(std::uint32_t address, Site site);
    bool mbarrier_wait_or_give_up(std::uint32_t address, int parity, Site site);
    void complete_barrier(std::size_t number);
    /// A barrier for all threads waits for those that have not ended.
    void complete_barriers_without_ended_threads();
    void wake_waiting_for(std::uint32_t mbarrier);
    int threads_alive() const noexcept;

    // --- Copies ----------------------------------------------------------------------------------

    struct PendingLoad {
        std::vector<CopyPiece> pieces;
        std::uint32_t destination;
        /// Of shared memory, from the destination on, that the copy may touch.
        std::uint32_t shared_bytes;
        /// That it brings to the barrier.
        std::uint32_t announced_bytes;
        std::uint32_t barrier;
        Site site;
    };
    void add_load(PendingLoad load, Site site);
    void complete_load(std::size_t index);
    void add_bulk_write(BulkWrite write, std::uint32_t source, std::uint32_t bytes);
    void read_source(BulkWrite& write);
    void write_result(BulkWrite& write) const;
    void require_copies_finished(const Thread& thread) const;
    void finish_bulk_writes();
    /// A map in shared memory, and the same put back.
    TensorMapContent tensor_map_in_shared(std::uint32_t map, Site site);
    void put_tensor_map(std::uint32_t map, const TensorMapContent& content, Site site);
    TensorMapContent tensor_map_at(const void* map, const TensorCopy& copy, Site site) const;

    // --- State -----------------------------------------------------------------------------------

    static thread_local Block* current_;

    BlockLaunch launch_;
    StackPool& stacks_;
    Random random_;
    HappensBefore order_;
    SharedMemory memory_;
    std::vector<Thread> threads_;
    std::vector<Warp> warps_;
    std::size_t running_ = 0;
    std::size_t live_ = 0;
    std::uint32_t ready_count_ = 0;
    std::optional<FaultFound> fault_;
    std::exception_ptr foreign_;
    bool abandoned_ = false;
    /// Times in a row that threads were told that they wait in vain.
    int refusals_ = 0;

    enum class Policy { uniform, priorities, lane_order };
    Policy policy_;
    /// 0: never; else once in that many chances.
    std::uint32_t yields_;
    std::uint32_t early_copies_;
    /// At how many counts all that wait for counters of global memory have looked last, and at how
    /// many the block was last told that there is nothing to do but wait.
    std::uint64_t counters_seen_ = CounterWatch::never;
    CounterWatch::Told told_to_wait_ = CounterWatch::never;

    std::map<std::uint32_t, MBarrier> mbarriers_;
    std::array<NamedBarrier, 16> named_barriers_;
    std::vector<PendingLoad> pending_loads_;
    int free_registers_ = 0;
    bool next_allowed_ = false;
    bool previous_ended_;
};

}  // namespace backlight::emulation
