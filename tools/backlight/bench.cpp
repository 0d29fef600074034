#include "bench.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "arguments.hpp"
#include "attention/kernels.hpp"
#include "backlight/error.hpp"
#include "bench_report.hpp"
#include "environment.hpp"
#include "json_file.hpp"
#include "matmul_peak.hpp"
#include "plot_documents.hpp"
#include "runtime_implementation.hpp"
#include "session/gpu.hpp"
#include "slowed_bench.hpp"
#include "subcommand.hpp"
#include "tuning/search_space.hpp"
#include "verification/packing.hpp"

namespace backlight::tool {

namespace {

/// As many queries as keys in each.
std::vector<SequenceShape> shapes_of(const std::vector<std::int64_t>& lengths) {
    std::vector<SequenceShape> shapes;
    for (const std::int64_t length : lengths) {
        shapes.push_back({.seqlen_q = length, .seqlen_kv = length});
    }
    return shapes;
}

verification::Packing packing_of(const BenchOptions& options) {
    return options.lengths.empty() ? verification::Packing{}
                                   : verification::pack(shapes_of(options.lengths));
}

std::vector<AttentionProblem> problems_of(const BenchOptions& options) {
    std::vector<AttentionProblem> problems = square_problems(
        options.shapes.empty() ? std::vector<std::string>{default_shape} : options.shapes,
        options.causal, options.full, options.dtype, options.features);
    if (!options.lengths.empty()) {
        const std::int64_t longest = std::ranges::max(options.lengths);
        for (AttentionProblem& problem : problems) {
            problem.batch = static_cast<std::int64_t>(options.lengths.size());
            problem.seqlen_q = problem.seqlen_kv = longest;
            problem = verification::packed_problem(problem,
                                                   verification::pack(shapes_of(options.lengths)));
        }
    }
    return problems;
}

std::vector<NamedConfig> configs_of(const BenchOptions& options) {
    std::vector<NamedConfig> configs = named_configs(options.kernels, options.tiles);
    for (NamedConfig& named : configs) {
        named.config.programmatic_dependent_launch = options.programmatic_dependent_launch;
        if (options.bake_seqlen) {
            named.config.sequence_lengths = SequenceLengths::compile_time;
        }
    }
    return configs;
}

/// Where none is named, takes the presets out that a problem refuses on the card, unless all do;
/// returns their names.
std::vector<std::string> leave_out_presets(const BenchOptions& options,
                                           const std::vector<AttentionProblem>& problems,
                                           const device::Target& target,
                                           std::vector<NamedConfig>& configs) {
    const auto is_taken = [&](const NamedConfig& named) {
        return std::ranges::all_of(problems, [&](const AttentionProblem& problem) {
            return tuning::is_legal(config_for(named, problem, target), problem, target);
        });
    };
    std::vector<std::string> left_out;
    if (!options.kernels.empty() || !options.tiles.empty() ||
        std::ranges::none_of(configs, is_taken)) {
        return left_out;
    }
    std::erase_if(configs, [&](const NamedConfig& named) {
        if (!is_taken(named)) {
            left_out.push_back(named.name);
        }
        return !is_taken(named);
    });
    return left_out;
}

/// The target whose tensor rate is asked for, if any. With it, takes the presets out that cannot be
/// slowed where no kernel is named; their names are added to `left_out`.
std::optional<device::Target> emulated_target(const BenchOptions& options,
                                              std::vector<NamedConfig>& configs,
                                              std::vector<std::string>& left_out) {
    if (options.emulate_tensor_rate.empty()) {
        return std::nullopt;
    }
    const device::Target target = device::target_by_name(options.emulate_tensor_rate);
    mma_rate(target);
    if (options.peak_tflops) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("peak-tflops is {}: it must be left out with emulate-tensor-rate, "
                                "under which the slowed rate is measured",
                                *options.peak_tflops));
    }
    for (const auto& [given, name] :
         {std::pair{options.host_time, "host-time"}, std::pair{!options.profile.empty(), "profile"},
          std::pair{!options.plot.empty(), "plot"}}) {
        if (given) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("emulate-tensor-rate is {} and {} is given: only the tables "
                                    "and the JSON tell of a slowed card",
                                    options.emulate_tensor_rate, name));
        }
    }
    if (options.kernels.empty() && options.tiles.empty()) {
        std::erase_if(configs, [&](const NamedConfig& named) {
            const bool out = !can_be_slowed(named);
            if (out) {
                left_out.push_back(named.name);
            }
            return out;
        });
    }
    check_can_be_slowed(configs);
    return target;
}

void check_numbers(const BenchOptions& options) {
    if (options.repeats < 1) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("repeats is {}: it must be 1 or more", options.repeats));
    }
    for (const std::int64_t length : options.lengths) {
        if (length < 0 || std::ranges::max(options.lengths) == 0) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("lengths is {}: each must be 0 or more, and one above 0",
                                    fmt::join(options.lengths, ",")));
        }
    }
    if (!options.lengths.empty() && options.features.seqlen_kv) {
        throw refused("seqlen-kv", std::to_string(*options.features.seqlen_kv),
                      "left out with --lengths, whose sequences have as many keys as queries");
    }
    if (!options.lengths.empty() && !options.emulate_tensor_rate.empty()) {
        throw Error(ErrorCode::invalid_argument,
                    "lengths and emulate-tensor-rate are both given: only problems of equal "
                    "lengths are timed at another tensor rate");
    }
    const auto check_peak = [](const char* name, std::optional<double> peak) {
        if (peak && !(*peak > 0)) {
            throw Error(ErrorCode::invalid_argument,
                        fmt::format("{} is {}: it must be above 0", name, *peak));
        }
    };
    check_peak("peak-tflops", options.peak_tflops);
    check_peak("peak-bandwidth", options.peak_bandwidth);
}

/// "H200 (sm_90a), driver …": the heading of the tables.
std::string heading(const BenchReport& report) {
    const Environment& environment = report.environment;
    std::string text = fmt::format(
        "{} ({}), driver {}, CUDA {}, NVRTC {}, backlight {} ({})\n", environment.gpu,
        environment.target, environment.driver_version.empty() ? "?" : environment.driver_version,
        environment.cuda_version, environment.nvrtc_version, environment.version,
        environment.git_revision);
    text += fmt::format(
        "Whole backward (delta, main, convert): median of {}, interleaved, L2 flushed, {}\n",
        report.timing.repeats, report.regime);
    if (report.timing.repeats < least_reported_repeats) {
        text +=
            fmt::format("Fewer than {} repetitions: not for reporting.\n", least_reported_repeats);
    }
    if (report.slowed_rate) {
        text += format_slowed_rate(*report.slowed_rate);
    } else if (!report.peaks.tflops) {
        text += fmt::format("Peak: {}; --peak-tflops and --peak-bandwidth give it.\n",
                            report.peaks.source);
    }
    if (!report.matmul_note.empty()) {
        text += fmt::format("No matmul rate: {}\n", report.matmul_note);
    }
    if (!report.nvml_note.empty()) {
        text += fmt::format("No clocks and power: {}\n", report.nvml_note);
    }
    return text;
}

ProblemResult measure(Gpu& gpu, SupportKernels& support, const Nvml& nvml, const MatmulPeak* matmul,
                      const AttentionProblem& problem, const std::vector<NamedConfig>& configs,
                      const BenchOptions& options, const TimingOptions& timing) {
    ProblemData data(support, problem, options.layout, packing_of(options));
    data.randomise(1);
    ProblemResult result{.problem = problem, .layout = to_string(options.layout)};
    if (problem.packed) {
        result.sequences = data.packing().shapes();
    }

    std::vector<std::shared_ptr<const BackwardPlan>> plans;
    std::size_t workspace_bytes = 0;
    for (const NamedConfig& named : configs) {
        plans.push_back(gpu.runtime().backward(
            problem, config_for(named, problem, gpu.device().properties().target)));
        workspace_bytes = std::max(workspace_bytes, plans.back()->workspace_bytes());
        result.variants.push_back({.name = named.name,
                                   .config = plans.back()->config(),
                                   .resources = plans.back()->resources(),
                                   .workspace_bytes = plans.back()->workspace_bytes()});
    }
    void* const workspace = data.workspace(workspace_bytes);
    const BackwardTensors tensors = data.tensors();

    std::vector<TimedWork> works;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        works.push_back({configs[i].name, [&, i] {
                             plans[i]->run(tensors, workspace, workspace_bytes, gpu.stream());
                         }});
    }
    if (matmul != nullptr) {
        works.push_back({"matmul", [&] { matmul->enqueue(); }});
        result.matmul = MatmulResult{.library = matmul->library(),
                                     .size = MatmulPeak::size,
                                     .dtype = options.dtype,
                                     .flops = MatmulPeak::flops()};
    }
    auto samples = time_interleaved(gpu, support, nvml, works, timing);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        result.variants[i].samples = std::move(samples[i]);
    }
    if (matmul != nullptr) {
        result.matmul->samples = std::move(samples.back());
    }
    return result;
}

/// The configuration to profile: by the name of one in the list, else a preset.
NamedConfig profiled_config(const BenchOptions& options, const std::vector<NamedConfig>& configs) {
    for (const NamedConfig& named : configs) {
        if (named.name == options.profile) {
            return named;
        }
    }
    BenchOptions only = options;
    only.kernels = {options.profile};
    only.tiles.clear();
    return configs_of(only).front();
}

void profile(Gpu& gpu, SupportKernels& support, const AttentionProblem& problem,
             const NamedConfig& named, const BenchOptions& options, std::ostream& out) {
    const auto plan = gpu.runtime().backward(
        problem, config_for(named, problem, gpu.device().properties().target));
    ProblemData data(support, problem, options.layout, packing_of(options));
    data.randomise(1);
    constexpr int warm_up = 3;
    for (int i = 0; i < warm_up; ++i) {
        data.run(*plan);
    }
    gpu.synchronise();
    gpu.driver().check(gpu.driver().cuProfilerStart(), "start the profiler");
    data.run(*plan);
    gpu.synchronise();
    gpu.driver().check(gpu.driver().cuProfilerStop(), "stop the profiler");
    out << fmt::format("{}: one backward of {} between cuProfilerStart and cuProfilerStop\n",
                       named.name, to_string(problem));
}

}  // namespace

void bench(const BenchOptions& options, std::ostream& out) {
    check_numbers(options);
    if (!options.plot_from.empty()) {
        draw_documents(bench_documents, options.plot_from, options.plot, out);
        return;
    }
    check_json_path(options.json);
    check_plot(options.plot);
    const std::vector<AttentionProblem> problems = problems_of(options);
    std::vector<NamedConfig> configs = configs_of(options);
    std::vector<std::string> left_out;
    const std::optional<device::Target> emulated = emulated_target(options, configs, left_out);

    RuntimeOptions runtime_options;
    runtime_options.device = options.device;
    Gpu gpu(runtime_options);
    SupportKernels support(gpu);
    if (!options.profile.empty()) {
        profile(gpu, support, problems.front(), profiled_config(options, configs), options, out);
        return;
    }
    const device::Target& target = gpu.device().properties().target;
    std::ranges::copy(leave_out_presets(options, problems, target, configs),
                      std::back_inserter(left_out));
    std::optional<EmulatedTensorRate> slowed_to;
    if (emulated) {
        slowed_to = emulated_tensor_rate(target, *emulated);
    }
    // A long sweep must not end at its last problem because of an argument.
    for (const AttentionProblem& problem : problems) {
        for (const NamedConfig& named : configs) {
            attention::backward_chain(problem, config_for(named, problem, target), target);
        }
    }

    const Nvml nvml(gpu.cuda_device());
    BenchReport report{.environment = environment_of(gpu, nvml),
                       .regime = options.cool ? "cool" : "hot",
                       .peaks = slowed_to ? Peaks{.tflops = std::nullopt,
                                                  .gigabytes_per_second = std::nullopt,
                                                  .source = "none: the tensor rate is emulated"}
                                          : datasheet_peaks(gpu.runtime().device_name()),
                       .nvml_note = nvml.note()};
    report.timing.repeats = options.repeats;
    report.timing.pause_milliseconds = options.cool ? report.timing.pause_milliseconds : 0;
    report.timing.flush_bytes = flush_bytes(gpu.device().properties().l2_bytes);
    if (options.peak_tflops || options.peak_bandwidth) {
        const bool both = options.peak_tflops && options.peak_bandwidth;
        report.peaks.source =
            both || !report.peaks.tflops ? "command line" : "command line and datasheet";
        report.peaks.tflops = options.peak_tflops ? options.peak_tflops : report.peaks.tflops;
        report.peaks.gigabytes_per_second =
            options.peak_bandwidth ? options.peak_bandwidth : report.peaks.gigabytes_per_second;
    }
    const bool tables = options.json != "-";

    if (options.host_time) {
        for (const NamedConfig& named : configs) {
            report.host_times.push_back(measure_host_time(gpu, support, named, options.dtype));
        }
        if (tables) {
            out << format_host_times(report.host_times);
        }
    } else {
        std::unique_ptr<MatmulPeak> matmul;
        std::optional<SlowedBench> slowed;
        if (slowed_to) {
            slowed.emplace(gpu, support, nvml, *slowed_to, options.dtype);
            report.slowed_rate = slowed->calibrate();
            report.matmul_note = "left out: a library's product cannot be slowed";
        } else if (options.matmul) {
            try {
                matmul = std::make_unique<MatmulPeak>(gpu, support, options.dtype);
            } catch (const Error& error) {
                report.matmul_note = error.what();
            }
        } else {
            report.matmul_note = "left out by --no-matmul";
        }
        if (tables) {
            out << heading(report);
            if (!left_out.empty()) {
                out << fmt::format("Not timed, as they cannot be had here with every shape: {}\n",
                                   fmt::join(left_out, ", "));
            }
        }
        for (const AttentionProblem& problem : problems) {
            report.problems.push_back(
                slowed ? slowed->measure(problem, configs, options.layout, report.timing)
                       : measure(gpu, support, nvml, matmul.get(), problem, configs, options,
                                 report.timing));
            if (tables) {
                out << '\n'
                    << (slowed ? format_slowed_problem(report.problems.back())
                               : format_problem(report.problems.back(), report.peaks))
                    << std::flush;
            }
        }
    }
    if (!options.json.empty()) {
        write_json(options.json, to_json(report), out);
    }
    if (!options.plot.empty()) {
        draw(bench_charts({to_json(report)}), options.plot);
    }
}

}  // namespace backlight::tool
