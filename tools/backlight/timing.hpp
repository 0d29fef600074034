#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "nvml.hpp"
#include "session/gpu.hpp"
#include "support_kernels.hpp"

namespace backlight::tool {

/// One repetition.
struct Sample {
    double milliseconds = 0;
    /// Read while the work was running.
    std::optional<double> sm_clock_mhz;
    std::optional<double> power_watts;
};

struct TimedWork {
    std::string name;
    /// Enqueues the work once on the GPU's stream, waiting for nothing.
    std::function<void()> enqueue;
    /// The same for what comes ahead of it and behind it and is not timed; may be empty.
    std::function<void()> enqueue_before = {};
    std::function<void()> enqueue_after = {};
};

struct TimingOptions {
    int repeats = 30;
    int warm_up = 3;
    /// Rest before each repetition, so that heat of the work before does not lower the clock.
    double pause_milliseconds = 25;
    /// The GPU is kept busy for about this long before the start event: what is timed is enqueued
    /// by then, and the host's own time is no part of it.
    double spin_milliseconds = 2;
    /// Written before each repetition, so that no tensor is left in L2.
    std::size_t flush_bytes = 0;
};

/// Twice the L2, and not less than 256 MiB.
std::size_t flush_bytes(std::size_t l2_bytes) noexcept;

/// Times every work `repeats` times by events on the GPU's stream, interleaved repetition by
/// repetition; every other repetition goes through them backwards, so that none always follows the
/// same one. Samples of each work, in order.
std::vector<std::vector<Sample>> time_interleaved(const Gpu& gpu, SupportKernels& support,
                                                  const Nvml& nvml,
                                                  const std::vector<TimedWork>& works,
                                                  const TimingOptions& options);

}  // namespace backlight::tool
