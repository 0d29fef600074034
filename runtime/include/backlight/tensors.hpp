#pragma once

#include <array>
#include <cstdint>

namespace backlight {

/// A tensor (batch, heads, seqlen, head_dim) in device memory, as a pointer and strides counted in
/// elements; head_dim is contiguous. Holds (B,H,N,d), (B,N,H,d) and slices of packed tensors alike.
struct TensorView {
    void* data = nullptr;
    std::int64_t stride_batch = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_seqlen = 0;

    bool operator==(const TensorView&) const = default;
};

/// A tensor that is only read.
struct ConstTensorView {
    const void* data = nullptr;
    std::int64_t stride_batch = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_seqlen = 0;

    ConstTensorView() = default;
    ConstTensorView(const void* data_, std::int64_t batch, std::int64_t head, std::int64_t seqlen)
        : data(data_), stride_batch(batch), stride_head(head), stride_seqlen(seqlen) {}
    ConstTensorView(const TensorView& view)  // NOLINT(google-explicit-constructor): as in C++
        : ConstTensorView(view.data, view.stride_batch, view.stride_head, view.stride_seqlen) {}

    bool operator==(const ConstTensorView&) const = default;
};

/// Row statistics (batch, heads, seqlen_q), fp32, contiguous over seqlen_q.
struct ConstRowView {
    const float* data = nullptr;
    std::int64_t stride_batch = 0;
    std::int64_t stride_head = 0;

    bool operator==(const ConstRowView&) const = default;
};

/// What one backward reads and writes. Every pointer is a device pointer.
///
/// Shapes are those of AttentionProblem: K, V and their gradients have its heads_kv heads, V, O and
/// dO its head_dim_v columns. dQ, dK and dV are of its gradient_type, the others of its dtype.
///
/// Rules, checked on every run: no null pointer; data of each tensor 16-byte aligned; every stride
/// over an extent above 1 a multiple of 16 bytes, which TMA demands (8 elements, or 4 of fp32), and
/// below 2^39 elements. Of inputs it may be 0, over batch, head and seqlen: all indices of that
/// dimension are then one place, as in a tensor that PyTorch has expanded (but for head_dim, which
/// is contiguous). Of outputs it is positive: they must not overlap themselves, and no two outputs,
/// nor an output and an input, may start at the same address. None may start within the workspace.
/// `lse` is 4-byte aligned, its strides over extents above 1 from 0 to below 2^39. A tensor of
/// length 0 is not looked at: its pointer may be null, or that of another.
///
/// Packed sequences: tensors are (heads, total_q or total_kv, head_dim), LSE is (heads, total_q),
/// and batch strides have no meaning. Sequence i has the rows cu_seqlens[i] … cu_seqlens[i + 1] of
/// the tensors of queries, and of those of keys; with `seqused` only so many of them, from the
/// first on. A sequence may have no rows, or only queries, whose dQ is 0, or only keys, whose dK
/// and dV are. The arrays hold int32, are read in the run's stream, must not change while it runs,
/// and are never read by the host: their content is not checked. It cannot make a run leave its
/// tensors (rows are held to the totals, lengths to seqlen_q and seqlen_kv), but what is wrong in
/// it makes gradients wrong: arrays that decrease, end beyond the total, or have longer sequences.
struct BackwardTensors {
    ConstTensorView q, k, v, o, d_o;
    ConstRowView lse;
    TensorView d_q, d_k, d_v;
    /// (batch + 1), where sequences are packed; null otherwise. 4-byte aligned, as all of these.
    const std::int32_t* cu_seqlens_q = nullptr;
    const std::int32_t* cu_seqlens_kv = nullptr;
    /// (batch); null: all rows are used.
    const std::int32_t* seqused_q = nullptr;
    const std::int32_t* seqused_kv = nullptr;
};

/// Strides of a contiguous (batch, heads, seqlen, head_dim) tensor.
constexpr std::array<std::int64_t, 3> bhsd_strides(std::int64_t heads, std::int64_t seqlen,
                                                   std::int64_t head_dim) {
    return {heads * seqlen * head_dim, seqlen * head_dim, head_dim};
}

/// Strides (of batch, head, seqlen, in that order) of a contiguous (batch, seqlen, heads, head_dim)
/// tensor.
constexpr std::array<std::int64_t, 3> bshd_strides(std::int64_t heads, std::int64_t seqlen,
                                                   std::int64_t head_dim) {
    return {seqlen * heads * head_dim, head_dim, heads * head_dim};
}

}  // namespace backlight
