// The arguments of the register-resident mma kernel, defined once for host and device. Plain types
// only: this file is compiled by both.
#pragma once

#include "arguments/attention_backward.h"
#include "arguments/packing.h"

namespace backlight::kernel {

/// attention_backward_mma_resident: dK, dV, and dQ, or its sum in the accumulator.
struct MmaResidentArguments {
    TensorMap q;
    TensorMap k;
    TensorMap v;
    TensorMap d_o;
    // (batch, heads, seqlen_q padded to whole query tiles), in the order of the fragments
    const float* negated_lse_log2;
    const float* negated_delta;  // the same
    // (accumulator_heads, seqlen_q padded, head_dim), zeroed, in fragments; see d_q_fragments.cuh
    float* d_q_accumulator;
    void* d_k;
    void* d_v;
    Strides d_k_strides;
    Strides d_v_strides;
    // Where the kernel converts dQ itself:
    void* d_q;
    Strides d_q_strides;
    ProgressCounters counters;
    float softmax_scale;
    float softmax_scale_log2;  // softmax_scale · log2(e)
    int heads;                 // of keys and values, as all that counts heads here
    int batch_heads;
    int heads_per_group;    // at most batch_heads
    int tickets;            // in all
    int conversion_lag;     // groups of heads between a head's key tiles and its dQ's conversion
    int accumulator_heads;  // whose dQ the accumulator holds at a time: whole groups, or all
    int seqlen_q;
    int seqlen_kv;
    // A query attends to the keys with first_diagonal ≤ key − query ≤ last_diagonal, where the
    // kernel is compiled for a bound.
    int first_diagonal;
    int last_diagonal;
    // Neighbours that use one head of keys and values, where these are fewer.
    int heads_per_kv_head;
    // (batch, heads of queries, query tiles), of deterministic problems: key tiles that have added
    // to the tile's dQ; where sequences are packed, one for as many rows of the workspace
    unsigned* turns;
    // Where sequences are packed; then lengths, batch_heads, tickets and accumulator_heads have no
    // meaning, the diagonals are counted from each sequence's own, and the lag is one of tickets.
    PackedWork packed;
};

}  // namespace backlight::kernel
