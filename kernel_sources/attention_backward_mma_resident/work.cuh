// Which keys a block of the register-resident mma kernel works on.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/layout.cuh"

namespace backlight::kernel {

__device__ __forceinline__ int seqlen_q_of(const MmaResidentArguments& arguments) {
    return specialisation::seqlen_q != 0 ? specialisation::seqlen_q : arguments.seqlen_q;
}
__device__ __forceinline__ int seqlen_kv_of(const MmaResidentArguments& arguments) {
    return specialisation::seqlen_kv != 0 ? specialisation::seqlen_kv : arguments.seqlen_kv;
}

/// A tile of keys. Heads are taken in groups, whose queries and dQ the L2 cache holds, and within a
/// group the tiles that most queries see come first, so that the last blocks to run are short.
struct KeyTile {
    int batch_head;
    int batch;
    int head;
    int kv_start;

    __device__ __forceinline__ KeyTile(const MmaResidentArguments& arguments, int block) {
        const int kv_tiles = seqlen_kv_of(arguments) / block_kv;
        const int group_heads = arguments.heads_per_group;
        const int first_head = block / (group_heads * kv_tiles) * group_heads;
        const int in_group = block - first_head * kv_tiles;
        // The last group may be smaller.
        const int heads_left = arguments.batch_heads - first_head;
        const int heads = heads_left < group_heads ? heads_left : group_heads;
        const int kv_tile = in_group / heads;
        batch_head = first_head + in_group - kv_tile * heads;
        batch = batch_head / arguments.heads;
        head = batch_head % arguments.heads;
        kv_start = kv_tile * block_kv;
    }

    /// Queries that lie wholly above the diagonal see none of these keys.
    __device__ __forceinline__ int first_query() const { return causal ? kv_start : 0; }
};

}  // namespace backlight::kernel
