// The arguments of the kernels around a measurement, defined once for host and device. Plain types
// only: this file is compiled by both.
#pragma once

#include "arguments/attention_backward.h"

namespace backlight::kernel {

/// The type of an element that a measurement kernel reads or writes.
enum ElementType : int { element_bf16 = 0, element_fp16 = 1, element_fp32 = 2 };

/// Threads of a block of every kernel of measurement.cu but `spin`, which has one.
constexpr int measurement_threads = 256;

/// fill_normal: `elements` consecutive numbers of N(0, scale²). The same seed and index give the
/// same number, whatever the grid.
struct FillNormalArguments {
    void* out;
    long long elements;
    unsigned long long seed;
    float scale;
    ElementType type;
};

/// to_float and from_float: between a strided tensor of 16-bit elements and a contiguous fp32
/// tensor (batch, heads, seqlen, head_dim). `elements` is the product of these four.
struct StridedCopyArguments {
    void* strided;
    float* contiguous;
    Strides strides;
    long long elements;
    int heads;
    int seqlen;
    int head_dim;
    ElementType type;
};

/// count_differences: of `words` words of 32 bits, adds those that differ to `*differences`.
struct CountDifferencesArguments {
    const unsigned* left;
    const unsigned* right;
    long long words;
    unsigned* differences;
};

/// spin: keeps one thread busy for that many cycles of the multiprocessor's clock.
struct SpinArguments {
    long long cycles;
};

/// Warps of a block of tensor_rate: two for each of a multiprocessor's four schedulers.
constexpr int tensor_rate_warps = 8;
/// Independent products that a warp of it has under way.
constexpr int tensor_rate_products = 8;

/// tensor_rate: `iterations` times `tensor_rate_products` products a warp, and their repeats.
struct TensorRateArguments {
    /// Of each block, the multiprocessor's clocks for its loop.
    long long* cycles;
    /// What each thread's products add up to.
    float* sums;
    int iterations;
};

}  // namespace backlight::kernel
