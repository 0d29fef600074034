// Packed sequences, as the caller tells of them and as the delta kernel prepares them for the
// others; defined once for host and device. Plain types only: this file is compiled by both.
#pragma once

#include "arguments/attention_backward.h"

namespace backlight::kernel {

/// Where the sequences lie along the rows of a tensor (heads, total, head_dim): sequence i at rows
/// cu_seqlens[i] … cu_seqlens[i + 1], or as many of them as seqused[i] says. What the arrays hold
/// is not trusted: rows are held to the tensor, lengths to `longest`.
struct PackedRows {
    const int* cu_seqlens;  // (sequences + 1)
    const int* seqused;     // (sequences), or null
    int total;
    int longest;
};

/// Those of queries and of keys.
struct Packing {
    PackedRows q;
    PackedRows kv;
    int sequences;
};

/// A sequence in the order of tickets, which takes those of most queries first; behind the last one
/// stands what they are together.
struct alignas(16) PackedSequence {
    int first_tile;  // tiles of keys, of one head, that those before it have; all: of everyone
    int key_tiles;   // its own, at least one if it has a query; all: the most that anyone has
    int sequence;
    int first_row;  // of its rows in the workspace, counted in rows of all heads of queries
    int q_begin;
    int seqlen_q;
    int kv_begin;
    int seqlen_kv;
};

/// A tensor map of a whole operand, of which each sequence gets its own part.
struct PackedOperand {
    TensorMap map;
    const void* data;
    long long row_bytes;  // from row to row
    int of_keys;          // rather than of queries
};

/// Operands of which sequences have maps; gradients those that TMA stores.
enum PackedOperandIndex : int {
    packed_q,
    packed_d_o,
    packed_k,
    packed_v,
    packed_inputs,
    packed_d_q = packed_inputs,
    packed_d_k,
    packed_d_v,
    packed_operands,
};

/// attention_backward_delta where sequences are packed.
struct PackedDeltaArguments : DeltaArguments {
    Packing packing;
    PackedOperand operands[packed_operands];
    int operands_used;  // the first ones
    // Written:
    PackedSequence* order;
    TensorMap* maps;
    int heads_kv;
    int most_key_tiles;  // of one head: what there are tickets for
};

/// attention_backward_convert where sequences are packed.
struct PackedConvertArguments {
    ConvertArguments convert;
    PackedRows q;
    int sequences;
};

}  // namespace backlight::kernel
