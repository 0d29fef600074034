#include "bench_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "text_table.hpp"

namespace backlight::tool {

namespace {

constexpr const char* unknown = "-";

std::string percent(double value, std::optional<double> of) {
    return of ? fmt::format("{:.1f}%", 100 * value / *of) : unknown;
}

std::vector<double> milliseconds(const std::vector<Sample>& samples) {
    std::vector<double> values;
    values.reserve(samples.size());
    for (const Sample& sample : samples) {
        values.push_back(sample.milliseconds);
    }
    return values;
}

using Reading = std::optional<double> Sample::*;

std::optional<double> median_reading(const std::vector<Sample>& samples, Reading reading) {
    std::vector<double> values;
    for (const Sample& sample : samples) {
        if (sample.*reading) {
            values.push_back(*(sample.*reading));
        }
    }
    return values.empty() ? std::nullopt : std::optional(median(values));
}

std::string whole(std::optional<double> value) {
    return value ? fmt::format("{:.0f}", *value) : unknown;
}

std::optional<double> matmul_tflops(const ProblemResult& result) {
    if (!result.matmul) {
        return std::nullopt;
    }
    return tflops(result.matmul->flops, median_milliseconds(result.matmul->samples));
}

/// The main kernel's, which is second in the chain.
const KernelResources* main_resources(const VariantResult& variant) {
    return variant.resources.size() > 1 ? &variant.resources[1] : nullptr;
}

std::string bounds_table(const ProblemResult& result, const Peaks& peaks) {
    const LowerBounds bounds = lower_bounds(result, peaks);
    TextTable table({"lower bound", "work", "peak", "time"});
    const auto time = [](std::optional<double> value) {
        return value ? fmt::format("{:.2f} ms", *value) : unknown;
    };
    table.add({"compute", fmt::format("{:.4g} TFLOP", result.flops() / 1e12),
               peaks.tflops ? fmt::format("{:g} TFLOP/s", *peaks.tflops) : unknown,
               time(bounds.compute_milliseconds)});
    table.add({"memory", fmt::format("{:.4g} GB", backward_bytes(result.problem) / 1e9),
               peaks.gigabytes_per_second ? fmt::format("{:g} GB/s", *peaks.gigabytes_per_second)
                                          : unknown,
               time(bounds.memory_milliseconds)});
    return table.text();
}

}  // namespace

double percentile(std::vector<double> values, double fraction) {
    std::sort(values.begin(), values.end());
    const auto last = static_cast<double>(values.size() - 1);
    return values[static_cast<std::size_t>(std::lround(fraction * last))];
}

double median(std::vector<double> values) {
    const std::size_t middle = values.size() / 2;
    std::sort(values.begin(), values.end());
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double median_milliseconds(const std::vector<Sample>& samples) {
    return median(milliseconds(samples));
}

double least_milliseconds(const std::vector<Sample>& samples) {
    return std::ranges::min(milliseconds(samples));
}

double tflops(double flops, double milliseconds) noexcept {
    return flops / milliseconds / 1e9;
}

double slowed_peak_tflops(const TensorRateResult& result) {
    return tflops(result.flops, median_milliseconds(result.samples));
}

double tensor_busy(const MainKernelResult& main, const TensorRateResult& tensor_rate) {
    return tflops(main.executed_flops, median_milliseconds(main.samples)) /
           slowed_peak_tflops(tensor_rate);
}

double ProblemResult::flops() const noexcept {
    return sequences.empty() ? backward_flops(problem) : backward_flops(problem, sequences);
}

double ProblemResult::attended_pairs() const noexcept {
    return sequences.empty() ? backlight::attended_pairs(problem)
                             : backlight::attended_pairs(problem, sequences);
}

LowerBounds lower_bounds(const ProblemResult& result, const Peaks& peaks) noexcept {
    LowerBounds bounds;
    if (peaks.tflops) {
        bounds.compute_milliseconds = result.flops() / *peaks.tflops / 1e9;
    }
    if (peaks.gigabytes_per_second) {
        bounds.memory_milliseconds =
            backward_bytes(result.problem) / *peaks.gigabytes_per_second / 1e6;
    }
    return bounds;
}

std::string problem_title(const ProblemResult& result) {
    return fmt::format("{} {}", short_text(result.problem), result.layout);
}

std::string format_problem(const ProblemResult& result, const Peaks& peaks) {
    TextTable table({"kernel", "latency", "min", "TFLOP/s", "% of peak", "% of matmul", "SM MHz",
                     "W", "registers", "spilled"});
    const std::optional<double> matmul = matmul_tflops(result);
    const auto add = [&](const std::string& name, double flops, const std::vector<Sample>& samples,
                         const KernelResources* resources) {
        const double latency = median_milliseconds(samples);
        const double rate = tflops(flops, latency);
        table.add(
            {name, fmt::format("{:.4f} ms", latency),
             fmt::format("{:.4f} ms", least_milliseconds(samples)), fmt::format("{:.2f}", rate),
             percent(rate, peaks.tflops), percent(rate, matmul),
             whole(median_reading(samples, &Sample::sm_clock_mhz)),
             whole(median_reading(samples, &Sample::power_watts)),
             resources != nullptr ? fmt::format("{}", resources->registers) : unknown,
             resources != nullptr ? fmt::format("{} B", resources->spill_store_bytes) : unknown});
    };
    for (const VariantResult& variant : result.variants) {
        add(table_name(variant.name, variant.config), result.flops(), variant.samples,
            main_resources(variant));
    }
    if (result.matmul) {
        add(fmt::format("matmul {}³ ({})", result.matmul->size, result.matmul->library),
            result.matmul->flops, result.matmul->samples, nullptr);
    }
    return problem_title(result) + "\n\n" + table.text() + "\n" + bounds_table(result, peaks);
}

std::string format_slowed_rate(const SlowedRate& slowed) {
    const EmulatedTensorRate& rate = slowed.rate;
    return fmt::format(
        "Tensor rate of {}, {:g} clocks a product and scheduler: each mma.sync m16n8k16 {} times, "
        "{} x {:g} = {:.1f} on {}; a loop of them took {:.2f}, and {:.2f} where once each.\n"
        "Figures of a slowed card: docs/emulated_tensor_rate.md says what they are good for.\n",
        rate.emulated.target, rate.emulated.clocks, rate.mma_repeats, rate.mma_repeats,
        rate.device.clocks, rate.slowed_clocks(), rate.device.target, slowed.measured_slowed_clocks,
        slowed.measured_device_clocks);
}

std::string format_slowed_problem(const ProblemResult& result) {
    const TensorRateResult& loop = result.tensor_rate.value();
    const double peak = slowed_peak_tflops(loop);
    TextTable table({"kernel", "whole", "TFLOP/s", "% of slowed peak", "main", "tensor busy",
                     "SM MHz", "registers", "spilled"});
    for (const VariantResult& variant : result.variants) {
        const MainKernelResult& main = variant.main_kernel.value();
        const double latency = median_milliseconds(variant.samples);
        const double rate = tflops(result.flops(), latency);
        const KernelResources* const resources = main_resources(variant);
        table.add(
            {variant.name, fmt::format("{:.4f} ms", latency), fmt::format("{:.2f}", rate),
             percent(rate, peak), fmt::format("{:.4f} ms", median_milliseconds(main.samples)),
             percent(tensor_busy(main, loop), 1),
             whole(median_reading(main.samples, &Sample::sm_clock_mhz)),
             resources != nullptr ? fmt::format("{}", resources->registers) : unknown,
             resources != nullptr ? fmt::format("{} B", resources->spill_store_bytes) : unknown});
    }
    table.add({"loop of mma.sync", fmt::format("{:.4f} ms", median_milliseconds(loop.samples)),
               fmt::format("{:.2f}", peak), unknown, unknown, unknown,
               whole(median_reading(loop.samples, &Sample::sm_clock_mhz)), unknown, unknown});
    return problem_title(result) + "\n\n" + table.text();
}

std::string format_host_times(const std::vector<HostTime>& host_times) {
    TextTable table({"kernel", "run", "of it launches", "run, 99 of 100", "cold compile"});
    for (const HostTime& time : host_times) {
        table.add({time.kernel, fmt::format("{:.2f} us", median(time.run_microseconds)),
                   fmt::format("{:.2f} us", median(time.launch_microseconds)),
                   fmt::format("{:.2f} us", percentile(time.run_microseconds, 0.99)),
                   fmt::format("{:.0f} ms", time.cold_compile_milliseconds)});
    }
    return "Host time of one call (whole chain, same pointers), median\n\n" + table.text();
}

}  // namespace backlight::tool
