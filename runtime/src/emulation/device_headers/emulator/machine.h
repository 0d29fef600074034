// What a kernel compiled for the host and the emulator that runs it say to each other. Compiled by
// both: by the library, and by the host compiler into every kernel object. Plain types only.
#pragma once

namespace backlight::emulation {

/// A place in a kernel's source: where a report points to.
struct Site {
    const char* file;
    int line;

    /// The caller's place, when this call is itself a default argument.
    static constexpr Site here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

/// A register of an operand or an accumulator of the tensor cores: its bits, and what the emulator
/// knows of them. Hardware fills these registers late; a tag other than 0 says that their use
/// must be told first.
struct Register {
    unsigned bits;
    /// Number of the load or product that fills the register; 0: an ordinary value.
    unsigned tag;
    /// How many wgmma fences its thread had passed when the kernel last wrote it.
    unsigned fences;
};

enum class ElementType : int { bf16, fp16, fp32 };

/// Which dimension of a matrix operand is contiguous in shared memory.
enum class Major : int { k, mn };

/// Whether a thread waits at a barrier or only arrives.
enum class BarrierUse : int { synchronise, arrive };

enum class Proxies : int { shared, global, all };

/// Where a thread is in its launch.
struct Position {
    unsigned thread;
    unsigned block;
    unsigned threads;
    unsigned blocks;
};

/// One warpgroup matrix product, as wgmma.mma_async states it.
struct WarpgroupProduct {
    ElementType type;
    int columns;             // n
    Register* accumulators;  // columns / 2
    /// Four registers, or null: then A lies in shared memory.
    const Register* a;
    unsigned long long a_descriptor;
    unsigned long long b_descriptor;
    Major a_major;
    Major b_major;
    /// false: the accumulators' old content counts as zero.
    bool accumulate;
};

/// A copy of a box between shared memory and a tensor in global memory.
struct TensorCopy {
    const void* tensor_map;
    unsigned shared_address;
    int rank;
    int coordinates[5];  // fastest first
};

/// The emulator as a kernel sees it: a call for each primitive. Calls that wait do not return until
/// the emulator lets the thread go on. Addresses of shared memory are 32-bit, as in PTX.
struct Machine {
    const Position* (*position)();

    // Threads of a block and of a warp.
    /// bar.sync and bar.arrive; `threads` 0: all of the block.
    void (*block_barrier)(int barrier, int threads, BarrierUse use, Site site);
    void (*warp_barrier)(unsigned mask, Site site);
    /// The value that `source_lane` brings to the same call.
    unsigned (*shuffle)(unsigned mask, unsigned value, int source_lane, Site site);
    unsigned (*ballot)(unsigned mask, bool predicate, Site site);
    bool (*elect)(unsigned mask, Site site);
    /// setmaxnreg
    void (*set_registers)(int registers, bool increase, Site site);

    // mbarriers.
    void (*mbarrier_initialise)(unsigned barrier, int arrivals, Site site);
    void (*mbarrier_initialisation_fence)(Site site);
    void (*mbarrier_arrive)(unsigned barrier, Site site);
    void (*mbarrier_arrive_expect_bytes)(unsigned barrier, int bytes, Site site);
    /// Waits as long as it takes.
    void (*mbarrier_wait)(unsigned barrier, int parity, Site site);
    /// False where nothing else could go on either: then the kernel may do something else.
    bool (*mbarrier_try_wait)(unsigned barrier, int parity, Site site);

    // Shared memory.
    void (*proxy_fence)(Proxies proxies, Site site);
    void (*store_shared)(unsigned address, const void* data, int bytes, Site site);
    void (*load_shared)(unsigned address, void* data, int bytes, Site site);
    /// `matrices` 1, 2 or 4.
    void (*ldmatrix)(unsigned address, int matrices, bool transposed, Register* fragment,
                     Site site);
    void (*stmatrix)(unsigned address, int matrices, bool transposed, const unsigned* fragment,
                     Site site);
    /// Shared address of an object in the block's shared memory.
    unsigned (*shared_address)(const void* pointer, Site site);

    // Products.
    void (*mma_m16n8k16)(ElementType type, Register* c, const Register* a, const Register* b0,
                         const Register* b1, Site site);
    /// The kernel is about to read, or to write, a register whose tag is not 0.
    void (*read_register)(Register* used);
    void (*write_register)(Register* used);
    void (*wgmma)(const WarpgroupProduct& product, Site site);
    void (*wgmma_fence)(Site site);
    void (*wgmma_commit)(Site site);
    void (*wgmma_wait)(int groups_pending, Site site);
    /// wgmma fences that the calling thread has passed.
    unsigned (*wgmma_fences)();

    // Asynchronous copies.
    void (*tensor_load)(const TensorCopy& copy, unsigned barrier, Site site);
    void (*tensor_store)(const TensorCopy& copy, Site site);
    void (*tensor_reduce_add)(const TensorCopy& copy, Site site);
    void (*bulk_load)(unsigned destination, const void* source, int bytes, unsigned barrier,
                      Site site);
    void (*bulk_store)(void* destination, unsigned source, int bytes, Site site);
    void (*bulk_reduce_add)(void* destination, unsigned source, int bytes, ElementType type,
                            Site site);
    void (*bulk_commit)(Site site);
    /// `read`: only until the sources have been read.
    void (*bulk_wait)(int groups_pending, bool read, Site site);
    /// cp.async of 4, 8 or 16 bytes; `source_bytes` of them are read, the rest become zero.
    void (*async_copy)(unsigned destination, const void* source, int bytes, int source_bytes,
                       Site site);
    void (*async_copy_commit)(Site site);
    void (*async_copy_wait)(int groups_pending, Site site);

    // Tensor maps on the device: changed in shared memory, published to global memory.
    void (*set_tensor_map_address)(unsigned map, const void* address, Site site);
    void (*set_tensor_map_extent)(unsigned map, int dimension, int extent, Site site);
    /// By one lane for its warp.
    void (*publish_tensor_map)(void* destination, unsigned map, Site site);
    void (*acquire_tensor_map)(const void* map, Site site);

    // Global memory.
    void (*reduce_add_global)(float* address, const float* values, int count, Site site);
    /// Returns what the counter was.
    unsigned (*add_global_counter)(unsigned* counter, Site site);
    unsigned (*load_global_counter)(const unsigned* counter, Site site);
    unsigned (*wait_for_global_counter)(const unsigned* counter, unsigned value, Site site);

    // Programmatic dependent launch.
    void (*wait_for_previous_kernel)(Site site);
    void (*allow_next_kernel)(Site site);

    // Conversion of 16-bit elements, rounded to nearest even.
    unsigned (*pack)(ElementType type, float low, float high);
    void (*unpack)(ElementType type, unsigned packed, float* low, float* high);
};

}  // namespace backlight::emulation
