#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "arguments/attention_backward.h"
#include "arguments/measurement.h"
#include "attention/extents.hpp"
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
    void to_float(const ConstTensorView& in, float* out, const attention::Extents& extents,
                  DataType type);
    /// The way back, rounded to nearest even.
    void from_float(const float* in, const TensorView& out, const attention::Extents& extents,
                    DataType type);
    /// Adds to `*differences`, in device memory, how many words of 32 bits differ. `bytes` is a
    /// multiple of 4.
    void count_differences(const void* left, const void* right, std::size_t bytes,
                           std::uint32_t* differences);
    /// Keeps the stream busy for about that long, so that what follows is enqueued before it runs.
    /// For clocks that a device has: not the emulated one's.
    void spin(double milliseconds);

    /// O and LSE from Q, K and V, all contiguous fp32, of any valid problem that is not packed. The
    /// problem's fields replace the arguments' but for rows_q and rows_kv, if these are given: then
    /// heads are so many rows apart, as those of one of several packed sequences are.
    void reference_forward(const AttentionProblem& problem,
                           const kernel::ReferenceArguments& tensors);
    /// dQ, dK and dV from Q, K, V, O, LSE and dO.
    void reference_backward(const AttentionProblem& problem,
                            const kernel::ReferenceArguments& tensors);

  private:
    using Loaded = std::shared_ptr<const device::Kernel>;

    struct Launch {
        const char* source;
        const char* entry;
        std::string specialisation = {};
        std::int64_t blocks;
        int threads;
        std::size_t shared_bytes = 0;
    };

    /// The reference for rows up to a length.
    struct Reference {
        int head_dim_limit;
        int tile_rows;
        Loaded forward = {}, backward_query = {}, backward_key = {};

        static constexpr int padding = 4;
        int row_stride() const noexcept { return head_dim_limit + padding; }
        int score_stride() const noexcept { return tile_rows + padding; }
        std::size_t shared_bytes(int row_tiles, int score_tiles, int row_numbers) const noexcept;
    };

    Reference& reference_for(const AttentionProblem& problem) noexcept;
    Launch reference_launch(const char* entry, const Reference& reference, std::int64_t heads,
                            std::int64_t seqlen) const;

    /// Launches nothing where there are no blocks.
    void launch(Loaded& kernel, const Launch& launch, const void* arguments);

    compiler::KernelStore& store_;
    device::Device& device_;
    Stream stream_;
    Loaded fill_normal_, to_float_, from_float_, count_differences_, spin_;
    /// Tiles of long rows are half as tall: four of them fit the shared memory of any card.
    Reference short_rows_{.head_dim_limit = 128, .tile_rows = 32};
    Reference long_rows_{.head_dim_limit = 256, .tile_rows = 16};
};

}  // namespace backlight::measurement
