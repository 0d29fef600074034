#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "arguments/attention_backward.h"
#include "arguments/measurement.h"
#include "backlight/problem.hpp"
#include "backlight/tensors.hpp"
#include "compiler/kernel_store.hpp"
#include "device/device.hpp"

namespace backlight::measurement {

/// The kernels around a measurement and the fp32 reference, each compiled and loaded at its first
/// use. All work is enqueued on the one stream; nothing is waited for. For one thread.
class SupportKernels {
  public:
    SupportKernels(compiler::KernelStore& store, device::Device& device, Stream stream)
        : store_(store), device_(device), stream_(stream) {}

    /// Writes `elements` numbers of N(0, scale²).
    void fill_normal(void* out, std::size_t elements, DataType type, std::uint64_t seed,
                     float scale = 1);
    /// Strided 16-bit elements to contiguous fp32 (batch, heads, seqlen, head_dim), exactly.
    void to_float(const ConstTensorView& in, float* out, const AttentionProblem& problem,
                  std::int64_t seqlen);
    /// The way back, rounded to nearest even.
    void from_float(const float* in, const TensorView& out, const AttentionProblem& problem,
                    std::int64_t seqlen);
    /// Adds to `*differences`, in device memory, how many words of 32 bits differ. `bytes` is a
    /// multiple of 4.
    void count_differences(const void* left, const void* right, std::size_t bytes,
                           std::uint32_t* differences);
    /// Keeps the stream busy for about that long, so that what follows is enqueued before it runs.
    /// For clocks that a device has: not the emulated one's.
    void spin(double milliseconds);

    /// O and LSE from Q, K and V, all contiguous fp32. Throws `unsupported` if head_dim is above
    /// `reference_head_dim_limit`.
    void reference_forward(const AttentionProblem& problem,
                           const kernel::ReferenceArguments& tensors);
    /// dQ, dK and dV from Q, K, V, O, LSE and dO. The problem's fields replace the arguments'.
    void reference_backward(const AttentionProblem& problem,
                            const kernel::ReferenceArguments& tensors);

  private:
    using Loaded = std::shared_ptr<const device::Kernel>;

    void launch(Loaded& kernel, const char* source, const char* entry, std::int64_t blocks,
                int threads, std::size_t shared_bytes, const void* arguments);

    compiler::KernelStore& store_;
    device::Device& device_;
    Stream stream_;
    Loaded fill_normal_, to_float_, from_float_, count_differences_, spin_;
    Loaded forward_, backward_query_, backward_key_;
};

}  // namespace backlight::measurement
