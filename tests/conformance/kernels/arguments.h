// The arguments of the conformance kernels, defined once for host and device. Each kernel gets this
// text at the head of its specialisation. Plain types only.
#pragma once

#include "arguments/attention_backward.h"

namespace backlight::kernel {

/// matrix_round_trip, one warp: 32 rows of eight 16-bit elements go to shared memory, through
/// registers, and back to another place there.
struct MatrixRoundTripArguments {
    const void* rows;     // 32 × 16 bytes
    unsigned* registers;  // 32 lanes × 4, as ldmatrix filled them
    void* stored;         // 32 × 16 bytes, as stmatrix left them
    int matrices;         // 1, 2 or 4
    int load_transposed;
    int store_transposed;
};

/// mma_product, one warp: c (16×8) += a (16×16) · b (16×8).
struct MmaProductArguments {
    const void* a;  // row-major, 16-bit elements
    const void* b;  // column-major
    float* c;       // row-major
};

/// wgmma_product, one warpgroup: d (64×n) = a (64×64) · b (64×n), added to what d holds where
/// `accumulate`.
struct WgmmaProductArguments {
    TensorMap a;          // of the operand in shared memory
    TensorMap b;          // (k, n) with k contiguous, or with n contiguous where `b_mn_major`
    const void* a_rows;   // 64×64, k contiguous: of the operand in registers
    const float* before;  // 64×n
    float* d;             // 64×n
    int n;
    int b_mn_major;
    int swizzle;  // as a matrix descriptor numbers them
    int accumulate;
};

/// tensor_load, tensor_store, tensor_reduce_add: one box between shared memory, seen as raw bytes,
/// and a tensor.
struct TensorCopyArguments {
    TensorMap map;
    const void* shared_before;  // what shared memory holds at first
    void* shared_after;         // written by tensor_load
    int rank;
    int coordinates[5];
    int shared_bytes;       // a multiple of 16
    int transaction_bytes;  // what a load counts on its barrier
};

/// bulk_round_trip: `bytes` from `source` through shared memory to `copy`, and added to `sums`.
struct BulkCopyArguments {
    const void* source;
    void* copy;
    void* sums;
    int bytes;
    int type;  // of the sums: 0 bf16, 1 fp16, 2 fp32
};

/// bulk_relay: each block writes its part of `scratch` with plain stores, and its part of `out` by
/// bulk copies of what it wrote.
struct BulkRelayArguments {
    unsigned* scratch;
    unsigned* out;
    int words;  // of a block
};

/// async_copies, one warp: lane l copies 4, 8 and 16 bytes, of which min(l, size) are read.
struct AsyncCopyArguments {
    const void* source;  // 32 × 16 bytes
    void* out;           // 3 × 32 × 16 bytes; of the smaller copies the first bytes of each place
};

/// named_barriers, two warps: `rounds` values a lane handed from one warp to the other.
struct HandoverArguments {
    const unsigned* source;
    unsigned* out;
    int rounds;
};

/// pipeline: a producer warp brings `tiles` tiles through a ring of stages; the consumers' threads
/// sum what they read.
struct PipelineArguments {
    const float* source;  // tiles × consumers
    float* out;           // consumers
    float* last;          // consumers: of the last tile
    int tiles;
};

/// warp_collectives, one warp: what each lane gets of votes, shuffles, sums and elections.
struct CollectivesArguments {
    const unsigned* values;  // 32
    unsigned* out;           // 32 lanes × collective_results
};
constexpr int collective_results = 9;

/// global_reductions: every thread of the grid adds to the same numbers.
struct GlobalReductionArguments {
    float* pairs;       // 2 · groups
    float* quadruples;  // 4 · groups
    int groups;
};

/// global_counters, one warp a block: each takes a ticket and, when the block of the ticket before
/// has counted, makes its link of the chain from that one's.
struct GlobalCounterArguments {
    unsigned* ticket_counter;
    unsigned* links_complete;
    unsigned* tickets;  // of each block
    unsigned* links;    // (blocks + 1) × 32; the first is given
};

/// conversions: packs, unpacks and exponentials of `count` numbers.
struct ConversionArguments {
    const float* numbers;
    unsigned* packed;     // of numbers[i] and -numbers[i]
    float* unpacked;      // two a number
    float* exponentials;  // 2^numbers[i]
    int count;
};

}  // namespace backlight::kernel
