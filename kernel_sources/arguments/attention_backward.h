// The arguments of the backward's kernels, defined once for the host that fills them and the device
// that reads them. Plain types only: this file is compiled by both.
#pragma once

namespace backlight::kernel {

/// What the backward needs of a query row, read together.
struct alignas(8) RowStatistics {
    float lse_log2;  // LSE · log2(e)
    float delta;     // rowsum(dO ∘ O)
};

/// A CUtensorMap: what it holds is the driver's business.
struct alignas(128) TensorMap {
    unsigned char opaque[128];
};

/// Strides in elements; the head dimension is contiguous.
struct Strides {
    long long batch;
    long long head;
    long long seqlen;
};

/// How far a main kernel whose blocks convert dQ themselves has come; the delta kernel sets all to
/// 0.
struct ProgressCounters {
    unsigned* tickets;  // 1: those taken
    unsigned* added;    // (batch, heads): key tiles whose part of dQ the accumulator holds
    // (batch, heads): shares of dQ that are converted, their place zeroed for another head's; none
    // is counted where no other head comes to the place.
    unsigned* converted;
};

/// attention_backward_delta: row statistics, and zeros in the dQ accumulator and the counters.
struct DeltaArguments {
    const void* o;
    const void* d_o;
    const float* lse;
    Strides o_strides;
    Strides d_o_strides;
    long long lse_stride_batch;
    long long lse_stride_head;
    // Where the main kernel's rows are queries:
    RowStatistics* row_statistics;  // (batch, heads, seqlen_q)
    // Where its rows are keys, in the order of its fragments:
    float* negated_lse_log2;  // (batch, heads, padded_seqlen_q)
    float* negated_delta;     // (batch, heads, padded_seqlen_q)
    ProgressCounters counters;
    float* d_q_accumulator;  // (accumulator_heads, padded_seqlen_q, head_dim)
    int accumulator_heads;   // at most batch · heads
    int heads;
    int seqlen_q;
    int padded_seqlen_q;  // to whole query tiles of the main kernel
    // Of deterministic problems:
    unsigned* turns;  // (batch, heads, query_tiles), set to 0; or one a tile of packed rows
    int query_tiles;  // of the main kernel
};

/// A sequence of packed ones; see arguments/packing.h.
struct PackedSequence;

/// What main kernels need of packed sequences.
struct PackedWork {
    const PackedSequence* order;  // (sequences + 1)
    const TensorMap* maps;        // (sequences, packed_operands)
    int sequences;
};

/// attention_backward_mma: dK, dV, and dQ summed into the accumulator.
struct MmaArguments {
    TensorMap q;
    TensorMap k;
    TensorMap v;
    TensorMap d_o;
    const RowStatistics* row_statistics;
    float* d_q_accumulator;
    void* d_k;
    void* d_v;
    Strides d_k_strides;
    Strides d_v_strides;
    float softmax_scale;
    float softmax_scale_log2;  // softmax_scale · log2(e)
    int heads;
    int seqlen_q;
    int seqlen_kv;
};

/// attention_backward_wgmma: dK, dV and dQ.
struct WgmmaArguments {
    TensorMap q;
    TensorMap k;
    TensorMap v;
    TensorMap d_o;
    TensorMap d_k;
    TensorMap d_v;
    TensorMap d_q;
    const float* negated_lse_log2;
    const float* negated_delta;
    ProgressCounters counters;
    float* d_q_accumulator;
    float softmax_scale;
    float softmax_scale_log2;  // softmax_scale · log2(e)
    int heads;                 // of keys and values, as all that counts heads here
    int batch_heads;
    int seqlen_q;
    int seqlen_kv;
    int tickets;            // in all
    int conversion_lag;     // groups of heads between a head's key tiles and its dQ's conversion
    int accumulator_heads;  // whose dQ the accumulator holds at a time: whole groups, or all
    // A query attends to the keys with first_diagonal ≤ key − query ≤ last_diagonal, where the
    // kernel is compiled for a bound.
    int first_diagonal;
    int last_diagonal;
    // Neighbours that use one head of keys and values, where these are fewer.
    int heads_per_kv_head;
    // Of fp32 gradients, which TMA does not store:
    void* d_q_data;
    void* d_k_data;
    void* d_v_data;
    Strides d_q_strides;
    Strides d_k_strides;
    Strides d_v_strides;
    // Where sequences are packed, as of MmaResidentArguments:
    int heads_per_group;
    PackedWork packed;
    // Of deterministic problems, as of DeltaArguments:
    unsigned* turns;
};

/// attention_backward_convert: the accumulator, scaled, to dQ's own type and strides.
struct ConvertArguments {
    const float* d_q_accumulator;
    void* d_q;
    Strides d_q_strides;
    float softmax_scale;
    int heads;
    int seqlen_q;
    int padded_seqlen_q;  // rows of a head in the accumulator
};

/// Threads of a block of every kernel of attention_reference.cu.
constexpr int reference_threads = 128;

/// attention_reference_*: plain fp32 kernels over contiguous fp32 tensors (batch · heads, rows,
/// head_dim) of any lengths, 0 among them; a sequence may have only some of the rows, the first.
struct ReferenceArguments {
    const float* q;
    const float* k;
    const float* v;
    float* o;    // written by the forward, read by the backward
    float* lse;  // natural logarithm; written by the forward, read by the backward
    const float* d_o;
    float* d_q;
    float* d_k;
    float* d_v;
    float softmax_scale;
    int heads_per_kv_head;  // neighbours that use one head of keys and values
    int seqlen_q;
    int seqlen_kv;
    int rows_q;  // from head to head
    int rows_kv;
    int head_dim;
    int head_dim_v;
    // A query attends to the keys with first_diagonal ≤ key − query ≤ last_diagonal.
    int first_diagonal;
    int last_diagonal;
};

}  // namespace backlight::kernel
