#include "timing.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "session/device_buffer.hpp"

namespace backlight::tool {

namespace {

void call(const std::function<void()>& enqueue) {
    if (enqueue) {
        enqueue();
    }
}

}  // namespace

std::size_t flush_bytes(std::size_t l2_bytes) noexcept {
    constexpr std::size_t least = std::size_t{256} << 20U;
    return std::max(2 * l2_bytes, least);
}

std::vector<std::vector<Sample>> time_interleaved(const Gpu& gpu, SupportKernels& support,
                                                  const Nvml& nvml,
                                                  const std::vector<TimedWork>& works,
                                                  const TimingOptions& options) {
    const DeviceBuffer flush(gpu, options.flush_bytes);
    const Event start(gpu);
    const Event stop(gpu);

    for (const TimedWork& work : works) {
        for (int i = 0; i < options.warm_up; ++i) {
            call(work.enqueue_before);
            work.enqueue();
            call(work.enqueue_after);
        }
    }
    support.spin(options.spin_milliseconds);
    flush.fill(0, gpu.stream());
    gpu.synchronise();

    std::vector<std::vector<Sample>> samples(works.size());
    for (int repeat = 0; repeat < options.repeats; ++repeat) {
        for (std::size_t i = 0; i < works.size(); ++i) {
            const std::size_t index = repeat % 2 == 0 ? i : works.size() - 1 - i;
            if (options.pause_milliseconds > 0) {
                std::this_thread::sleep_for(
                    std::chrono::duration<double, std::milli>(options.pause_milliseconds));
            }
            flush.fill(static_cast<std::uint8_t>(repeat), gpu.stream());
            support.spin(options.spin_milliseconds);
            call(works[index].enqueue_before);
            start.record(gpu.stream());
            works[index].enqueue();
            stop.record(gpu.stream());
            call(works[index].enqueue_after);

            Sample sample;
            // All is enqueued: reading clocks delays nothing that is timed.
            start.synchronise();
            sample.sm_clock_mhz = nvml.sm_clock_mhz();
            sample.power_watts = nvml.power_watts();
            stop.synchronise();
            sample.milliseconds = stop.milliseconds_since(start);
            samples[index].push_back(sample);
        }
    }
    return samples;
}

}  // namespace backlight::tool
