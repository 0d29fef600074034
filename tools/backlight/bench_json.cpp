// The JSON of a benchmark: every sample as it was measured, and the figures that follow.

#include "bench_report.hpp"

namespace backlight::tool {

using Json = nlohmann::ordered_json;

namespace {

Json readings(const std::vector<Sample>& samples, std::optional<double> Sample::*reading) {
    Json values = Json::array();
    for (const Sample& sample : samples) {
        values.push_back(or_null(sample.*reading));
    }
    return values;
}

/// The fields that kernels and the matrix product have in common.
void add_samples(Json& object, double flops, const std::vector<Sample>& samples,
                 const Peaks& peaks) {
    const double latency = median_milliseconds(samples);
    const double rate = tflops(flops, latency);
    object["median_ms"] = latency;
    object["min_ms"] = least_milliseconds(samples);
    object["tflops"] = rate;
    object["percent_of_peak"] = peaks.tflops ? Json(100 * rate / *peaks.tflops) : Json(nullptr);
    Json milliseconds = Json::array();
    for (const Sample& sample : samples) {
        milliseconds.push_back(sample.milliseconds);
    }
    object["samples_ms"] = std::move(milliseconds);
    object["sm_clock_mhz"] = readings(samples, &Sample::sm_clock_mhz);
    object["power_watts"] = readings(samples, &Sample::power_watts);
}

Json main_kernel_json(const MainKernelResult& main, const TensorRateResult& tensor_rate) {
    Json object = {{"executed_flops", main.executed_flops},
                   {"tensor_busy_percent", 100 * tensor_busy(main, tensor_rate)}};
    // Of the device's peak it says nothing: its products are repeated.
    add_samples(object, main.executed_flops, main.samples, {});
    object.erase("percent_of_peak");
    return object;
}

Json slowed_rate_json(const SlowedRate& slowed) {
    const auto rate = [](const MmaRate& mma) -> Json {
        return {{"target", mma.target}, {"clocks_per_product", mma.clocks}, {"source", mma.source}};
    };
    return {{"product", "mma.sync m16n8k16 of 16-bit elements, by one scheduler"},
            {"emulated", rate(slowed.rate.emulated)},
            {"device", rate(slowed.rate.device)},
            {"mma_repeats", slowed.rate.mma_repeats},
            {"slowed_clocks_per_product", slowed.rate.slowed_clocks()},
            {"measured_slowed_clocks_per_product", slowed.measured_slowed_clocks},
            {"measured_device_clocks_per_product", slowed.measured_device_clocks}};
}

Json problem_result_json(const ProblemResult& result, const Peaks& peaks) {
    const LowerBounds bounds = lower_bounds(result, peaks);
    Json object = {{"problem", to_json(result.problem)},
                   {"layout", result.layout},
                   {"direction", "backward"},
                   {"attended_pairs", result.attended_pairs()},
                   {"flops", result.flops()},
                   {"bytes", backward_bytes(result.problem)},
                   {"lower_bound_compute_ms", or_null(bounds.compute_milliseconds)},
                   {"lower_bound_memory_ms", or_null(bounds.memory_milliseconds)}};
    if (!result.sequences.empty()) {
        Json lengths = Json::array();
        for (const SequenceShape& shape : result.sequences) {
            lengths.push_back({shape.seqlen_q, shape.seqlen_kv});
        }
        object["sequences"] = std::move(lengths);
    }
    std::optional<double> matmul_rate;
    object["matmul"] = nullptr;
    if (result.matmul) {
        matmul_rate = tflops(result.matmul->flops, median_milliseconds(result.matmul->samples));
        Json matmul = {{"library", result.matmul->library},
                       {"size", result.matmul->size},
                       {"dtype", to_string(result.matmul->dtype)},
                       {"flops", result.matmul->flops}};
        add_samples(matmul, result.matmul->flops, result.matmul->samples, peaks);
        object["matmul"] = std::move(matmul);
    }
    if (result.tensor_rate) {
        Json loop = {{"flops", result.tensor_rate->flops}};
        add_samples(loop, result.tensor_rate->flops, result.tensor_rate->samples, peaks);
        object["tensor_rate_loop"] = std::move(loop);
    }
    Json variants = Json::array();
    for (const VariantResult& variant : result.variants) {
        Json entry = {{"kernel", variant.name}, {"config", to_json(variant.config)}};
        add_samples(entry, result.flops(), variant.samples, peaks);
        entry["percent_of_matmul"] =
            matmul_rate ? Json(100 * entry["tflops"].get<double>() / *matmul_rate) : Json(nullptr);
        if (variant.main_kernel && result.tensor_rate) {
            entry["percent_of_slowed_peak"] =
                100 * entry["tflops"].get<double>() / slowed_peak_tflops(*result.tensor_rate);
            entry["main_kernel"] = main_kernel_json(*variant.main_kernel, *result.tensor_rate);
        }
        entry["workspace_bytes"] = variant.workspace_bytes;
        Json resources = Json::array();
        for (const KernelResources& kernel : variant.resources) {
            resources.push_back(to_json(kernel));
        }
        entry["resources"] = std::move(resources);
        variants.push_back(std::move(entry));
    }
    object["variants"] = std::move(variants);
    return object;
}

Json host_time_json(const HostTime& time) {
    return {{"kernel", time.kernel},
            {"problem", to_json(time.problem)},
            {"run_median_us", median(time.run_microseconds)},
            {"launches_median_us", median(time.launch_microseconds)},
            {"cold_compile_ms", time.cold_compile_milliseconds},
            {"run_us", time.run_microseconds},
            {"launches_us", time.launch_microseconds}};
}

}  // namespace

Json to_json(const KernelResources& resources) {
    return {{"entry", resources.kernel},
            {"target", resources.target},
            {"registers", resources.registers},
            {"stack_bytes", resources.stack_bytes},
            {"spill_store_bytes", resources.spill_store_bytes},
            {"spill_load_bytes", resources.spill_load_bytes},
            {"performance_warnings", resources.performance_warnings},
            {"shared_bytes", resources.shared_bytes},
            {"threads", resources.threads},
            {"blocks_per_multiprocessor", resources.blocks_per_multiprocessor},
            {"compile_ms", resources.compile_milliseconds},
            {"cached", resources.cached}};
}

Json to_json(const TileConfig& config) {
    return {{"family", to_string(config.family)},
            {"block_q", config.block_q},
            {"block_kv", config.block_kv},
            {"warps", config.warps},
            {"stages", config.stages},
            {"heads_per_group", config.heads_per_group},
            {"converts_d_q", config.converts_d_q},
            {"sequence_lengths", to_string(config.sequence_lengths)},
            {"programmatic_dependent_launch", config.programmatic_dependent_launch}};
}

Json to_json(const AttentionProblem& problem) {
    const auto bound = [](const std::optional<std::int64_t>& keys) {
        return keys ? Json(*keys) : Json(nullptr);
    };
    Json object = {{"batch", problem.batch},
                   {"heads", problem.heads},
                   {"heads_kv", problem.effective_heads_kv()},
                   {"seqlen_q", problem.seqlen_q},
                   {"seqlen_kv", problem.seqlen_kv},
                   {"head_dim", problem.head_dim},
                   {"head_dim_v", problem.effective_head_dim_v()},
                   {"causal", problem.causal},
                   {"mask_alignment", to_string(problem.mask_alignment)},
                   {"window_left", bound(problem.window_left)},
                   {"window_right", bound(problem.window_right)},
                   {"dtype", to_string(problem.dtype)},
                   {"gradient_type", to_string(problem.gradient_type)},
                   {"accumulate_gradients", problem.accumulate_gradients},
                   {"softmax_scale", problem.effective_softmax_scale()},
                   {"deterministic", problem.deterministic}};
    if (problem.packed) {
        object["packed"] = {{"total_q", problem.packed->total_q},
                            {"total_kv", problem.packed->total_kv}};
    }
    return object;
}

Json to_json(const BenchReport& report) {
    Json document = to_json(report.environment);
    document["protocol"] = {
        {"clock", "CUDA events around delta, main and convert kernels together"},
        {"statistic", "median"},
        {"repeats", report.timing.repeats},
        {"warm_up", report.timing.warm_up},
        {"interleaved", true},
        {"regime", report.regime},
        {"pause_ms", report.timing.pause_milliseconds},
        {"spin_ms", report.timing.spin_milliseconds},
        {"flush_bytes", report.timing.flush_bytes},
        {"inputs", "N(0, 1); O and LSE of the fp32 forward"},
        {"flops", flops_formula}};
    document["peaks"] = {{"tflops", or_null(report.peaks.tflops)},
                         {"gigabytes_per_second", or_null(report.peaks.gigabytes_per_second)},
                         {"source", report.peaks.source}};
    if (!report.matmul_note.empty()) {
        document["matmul_note"] = report.matmul_note;
    }
    if (!report.nvml_note.empty()) {
        document["nvml_note"] = report.nvml_note;
    }
    if (report.slowed_rate) {
        document["emulated_tensor_rate"] = slowed_rate_json(*report.slowed_rate);
    }
    document["measurements"] = Json::array();
    for (const ProblemResult& problem : report.problems) {
        document["measurements"].push_back(problem_result_json(problem, report.peaks));
    }
    if (!report.host_times.empty()) {
        document["host_time"] = Json::array();
        for (const HostTime& time : report.host_times) {
            document["host_time"].push_back(host_time_json(time));
        }
    }
    return document;
}

}  // namespace backlight::tool
