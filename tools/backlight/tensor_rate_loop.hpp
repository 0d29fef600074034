#pragma once

#include <memory>
#include <vector>

#include "backlight/problem.hpp"
#include "device/device.hpp"
#include "session/device_buffer.hpp"
#include "session/session.hpp"

namespace backlight::tool {

/// A loop of mma.sync alone, on all multiprocessors, whose products are repeated as a slowed
/// kernel's are: what the tensor cores give at most at that rate.
class TensorRateLoop {
  public:
    /// Some milliseconds on an H200.
    static constexpr int usual_iterations = 16384;

    TensorRateLoop(Session& session, DataType dtype, int mma_repeats,
                   int iterations = usual_iterations);

    /// Enqueues one run on the session's stream.
    void enqueue() const;

    /// Operations of a run that count: those with zeros do not.
    double flops() const noexcept;
    /// Clocks that a scheduler took for each product that counts, in the last run, which is waited
    /// for: the median of the multiprocessors.
    double clocks_per_product() const;
    /// What the products of each thread added up to in the last run.
    std::vector<float> sums() const;

  private:
    Session* session_;
    int iterations_;
    int blocks_;
    std::shared_ptr<const device::Kernel> kernel_;
    DeviceBuffer cycles_;
    DeviceBuffer sums_;
};

}  // namespace backlight::tool
