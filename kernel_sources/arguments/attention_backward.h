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

/// attention_backward_delta: row statistics and a zeroed dQ accumulator.
struct DeltaArguments {
    const void* o;
    const void* d_o;
    const float* lse;
    Strides o_strides;
    Strides d_o_strides;
    long long lse_stride_batch;
    long long lse_stride_head;
    RowStatistics* row_statistics;  // (batch, heads, seqlen_q)
    float* d_q_accumulator;         // (batch, heads, seqlen_q, head_dim)
    int heads;
    int seqlen_q;
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

/// attention_backward_convert: the accumulator, scaled, to dQ's own type and strides.
struct ConvertArguments {
    const float* d_q_accumulator;
    void* d_q;
    Strides d_q_strides;
    float softmax_scale;
    int heads;
    int seqlen_q;
};

/// attention_reference_*: plain fp32 kernels over contiguous fp32 tensors (batch · heads, seqlen,
/// head_dim).
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
    int seqlen_q;
    int seqlen_kv;
    int head_dim;
    int causal;
};

}  // namespace backlight::kernel
