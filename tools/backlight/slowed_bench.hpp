#pragma once

#include <vector>

#include "bench.hpp"
#include "bench_report.hpp"
#include "emulated_tensor_rate.hpp"
#include "session/gpu.hpp"
#include "support_kernels.hpp"
#include "tensor_rate_loop.hpp"

namespace backlight::tool {

/// What a device's tensor cores give at a rate that is not theirs, and how busy kernels keep them.
class SlowedBench {
  public:
    SlowedBench(Gpu& gpu, SupportKernels& support, const Nvml& nvml, EmulatedTensorRate rate,
                DataType dtype);

    /// The rate, and what the device takes for a product, as it is and repeated.
    SlowedRate calibrate() const;

    /// Interleaved: each configuration's whole backward, its main kernel alone, and the loop of
    /// products. Between the parts of a chain that is timed in parts, no kernel starts early.
    ProblemResult measure(const AttentionProblem& problem, const std::vector<NamedConfig>& configs,
                          Layout layout, const TimingOptions& timing) const;

  private:
    Gpu& gpu_;
    SupportKernels& support_;
    const Nvml& nvml_;
    EmulatedTensorRate rate_;
    TensorRateLoop native_;
    TensorRateLoop slowed_;
};

}  // namespace backlight::tool
