#include "tune.hpp"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "arguments.hpp"
#include "backlight/error.hpp"
#include "backlight/tuning.hpp"
#include "bench_report.hpp"
#include "environment.hpp"
#include "json_file.hpp"
#include "plot_documents.hpp"
#include "progress_line.hpp"
#include "runtime_implementation.hpp"
#include "subcommand.hpp"
#include "tune_report.hpp"
#include "tuning/database.hpp"
#include "tuning/search.hpp"

namespace backlight::tool {

namespace {

std::vector<AttentionProblem> problems_of(const TuneCommandOptions& options) {
    std::vector<std::string> shapes = options.shapes;
    if (shapes.empty() && options.merge.empty() && options.export_file.empty()) {
        shapes.emplace_back(default_shape);
    }
    return square_problems(shapes, options.causal, options.full, options.dtype, options.features);
}

TuneOptions tune_options(const TuneCommandOptions& options) {
    TuneOptions tuning{.kernel_family = options.kernel_family,
                       .budget = std::chrono::duration<double>(options.budget_seconds),
                       .repeats = options.repeats,
                       .retime = options.retime};
    for (const std::string& tile : options.tiles) {
        tuning.candidates.push_back(parse_tile(tile));
    }
    tuning::check_options(tuning);
    return tuning;
}

/// The session, and where there is a GPU what reads its clocks.
struct Bench {
    std::unique_ptr<Session> session;
    Gpu* gpu = nullptr;
    std::optional<Nvml> nvml;
};

Bench open_bench(const DeviceChoice& choice, const RuntimeOptions& options) {
    Bench bench;
    if (choice.emulation) {
        bench.session =
            std::make_unique<Session>(emulation::make_emulated_runtime(*choice.emulation, options));
        return bench;
    }
    auto gpu = std::make_unique<Gpu>(options);
    bench.nvml.emplace(gpu->cuda_device());
    bench.gpu = gpu.get();
    bench.session = std::move(gpu);
    return bench;
}

/// The emulated device takes minutes where a GPU takes microseconds, and its times mean nothing:
/// there `tune` only shows itself at work.
void require_possible(const DeviceChoice& choice, const std::vector<AttentionProblem>& problems) {
    constexpr std::int64_t most_rows = 1024;
    for (const AttentionProblem& problem : problems) {
        const std::int64_t heads_left =
            most_rows / std::max<std::int64_t>({problem.seqlen_q, problem.seqlen_kv, 1});
        if (choice.emulation &&
            problem.batch > heads_left / std::max<std::int64_t>(problem.heads, 1)) {
            throw refused("shape", short_text(problem),
                          "of at most 1024 rows (batch · heads · seqlen) on the emulated device, "
                          "whose times say nothing of a GPU");
        }
    }
}

/// "mma 32,64,8,2", "wgmma 64,128,16,2, 4 heads a group".
std::string tile_text(const TileConfig& config) {
    std::string text = fmt::format("{} {},{},{},{}", to_string(config.family), config.block_q,
                                   config.block_kv, config.warps, config.stages);
    if (groups_heads(config.family)) {
        text += fmt::format(", {} heads a group", config.heads_per_group);
    }
    if (config.converts_d_q) {
        text += ", converts dQ";
    }
    return text;
}

std::string progress_text(const AttentionProblem& problem, const TuneProgress& progress,
                          TimesOf times) {
    std::string text = fmt::format("{}  {} {}/{}  {:.0f} s  {}", short_text(problem),
                                   progress.stage, progress.done + 1, progress.total,
                                   progress.elapsed_seconds, tile_text(progress.config));
    if (progress.best_milliseconds > 0 && times == TimesOf::gpu) {
        text += fmt::format("  best {:.4f} ms", progress.best_milliseconds);
    }
    return text;
}

/// Clock and power while the finalists were timed: the largest of what was read between samples.
struct Readings {
    std::optional<double> sm_clock_mhz;
    std::optional<double> power_watts;

    void take(const Nvml& nvml) {
        sm_clock_mhz = std::max(sm_clock_mhz, nvml.sm_clock_mhz());
        power_watts = std::max(power_watts, nvml.power_watts());
    }
};

nlohmann::ordered_json head_of(Bench& bench) {
    if (bench.gpu != nullptr) {
        return to_json(environment_of(*bench.gpu, *bench.nvml));
    }
    return {{"gpu", {{"name", bench.session->runtime().device_name()}}},
            {"note", "emulated: the times say nothing about a GPU"}};
}

void merge_databases(const TuneCommandOptions& options, const std::string& database,
                     std::ostream& out) {
    tuning::Database merged;
    for (const std::string& file : options.merge) {
        const tuning::Database one = tuning::read_database(file);
        if (one == tuning::Database{}) {
            throw Error(ErrorCode::file_error,
                        fmt::format("merge is '{}': there is no such tuning database, or nothing "
                                    "in it",
                                    file));
        }
        merged.merge(one);
    }
    const auto all = tuning::add_to_file(database, merged, tuning::Addition::merged);
    out << fmt::format("{}: {} records after merging {} files\n", database, all.records().size(),
                       options.merge.size());
}

}  // namespace

double parse_budget(const std::string& text) {
    double number = 0;
    const char* const end = text.data() + text.size();
    const auto [next, failure] = std::from_chars(text.data(), end, number);
    const std::string_view unit(next, static_cast<std::size_t>(end - next));
    const double factor = unit.empty() || unit == "s" ? 1
                          : unit == "m"               ? 60
                          : unit == "h"               ? 3600
                                                      : 0;
    constexpr double most = 1e6;
    if (failure != std::errc{} || factor == 0 || !(number > 0) || !(number * factor <= most)) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("budget is '{}': it must be a time above 0, for example 60s or 5m", text));
    }
    return number * factor;
}

void tune(const TuneCommandOptions& options, std::ostream& out, std::ostream& errors) {
    if (!options.plot_from.empty()) {
        draw_documents(tune_documents, options.plot_from, options.plot, out);
        return;
    }
    const std::vector<AttentionProblem> problems = problems_of(options);
    TuneOptions tuning = tune_options(options);
    check_json_path(options.json);
    if (!options.plot.empty() && problems.empty()) {
        throw refused("plot", options.plot,
                      "left out where only databases are merged or exported: nothing is timed");
    }
    if (!options.plot.empty() && options.device.emulation) {
        throw refused("plot", options.plot,
                      "left out with --device emulated, whose times say nothing of a GPU");
    }
    check_plot(options.plot);
    RuntimeOptions runtime_options;
    runtime_options.device = options.device.ordinal;
    runtime_options.tuning_database = options.database;
    const std::string database = with_environment(runtime_options).tuning_database;
    const bool tables = options.json != "-";
    if (database.empty() && !(options.merge.empty() && options.export_file.empty())) {
        throw refused("database", "", "a file: there is no default one without HOME");
    }

    if (!options.merge.empty()) {
        merge_databases(options, database, tables ? out : errors);
    }
    nlohmann::ordered_json document;
    std::string wrong;
    if (!problems.empty()) {
        require_possible(options.device, problems);
        Bench bench = open_bench(options.device, runtime_options);
        tuning.stream = bench.session->stream();
        document = head_of(bench);
        document["protocol"] = {{"statistic", "median"},
                                {"repeats", tuning.repeats},
                                {"interleaved", true},
                                {"cold_l2", true},
                                {"inputs", "N(0, 1); O and LSE of the fp32 forward"},
                                {"flops", flops_formula}};
        document["database"] = database;
        const TimesOf times = options.device.emulation ? TimesOf::emulated_device : TimesOf::gpu;
        document["tunings"] = nlohmann::ordered_json::array();
        for (const AttentionProblem& problem : problems) {
            ProgressLine line(errors);
            Readings readings;
            tuning.progress = [&](const TuneProgress& progress) {
                line.show(progress_text(problem, progress, times));
                if (bench.nvml && std::string_view(progress.stage) == "time") {
                    readings.take(*bench.nvml);
                }
            };
            const TuneReport report = bench.session->runtime().tune(problem, tuning);
            line.clear();
            if (tables) {
                out << short_text(problem) << "\n\n"
                    << format_tune(report, times) << '\n'
                    << std::flush;
            }
            if (winner_is_wrong(report)) {
                wrong = fmt::format("{}: what plans use, {}, computes wrong gradients: {}",
                                    short_text(problem), to_string(report.winner),
                                    winner_of(report)->note);
            }
            document["tunings"].push_back(to_json(report, times));
            document["tunings"].back()["sm_clock_mhz"] = or_null(readings.sm_clock_mhz);
            document["tunings"].back()["power_watts"] = or_null(readings.power_watts);
            if (!options.json.empty() && options.json != "-") {
                // After each problem: a sweep that is broken off has not been for nothing.
                write_json(options.json, document, out);
            }
        }
    }
    if (!options.export_file.empty()) {
        const tuning::Database checked = tuning::read_database(database).checked_only();
        if (checked.records().empty()) {
            throw Error(ErrorCode::file_error,
                        fmt::format("export is '{}': there is nothing to write, as the database "
                                    "'{}' has no checked records",
                                    options.export_file, database));
        }
        tuning::write_database(options.export_file, checked);
    }
    if (options.json == "-") {
        write_json(options.json, document, out);
    }
    if (!options.plot.empty()) {
        draw(tune_charts({document}), options.plot);
    }
    if (!wrong.empty()) {
        throw Error(ErrorCode::kernel_fault, wrong);
    }
}

}  // namespace backlight::tool
