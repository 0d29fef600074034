#include "plot_documents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "backlight/error.hpp"
#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "json_file.hpp"

namespace backlight::tool {

namespace {

using Json = nlohmann::ordered_json;

Error another_kind(const char* command, const nlohmann::json::exception& error) {
    return {ErrorCode::file_error,
            fmt::format("a plot is made of what `{} --json` writes, and this is something else: {}",
                        command, error.what())};
}

/// The one of that name, made where there is none.
template <typename Item>
Item& named(std::vector<Item>& all, const std::string& name, std::string Item::*member) {
    const auto found = std::ranges::find(all, name, member);
    if (found != all.end()) {
        return *found;
    }
    all.push_back({});
    all.back().*member = name;
    return all.back();
}

/// Documents of earlier versions know no windows.
std::string mask_name(const Json& problem) {
    const auto seqlen_q = problem.at("seqlen_q").get<std::int64_t>();
    AttentionProblem mask{.seqlen_q = seqlen_q,
                          .seqlen_kv = problem.value("seqlen_kv", seqlen_q),
                          .causal = problem.at("causal").get<bool>()};
    const auto bound = [&](const char* name, std::optional<std::int64_t>& keys) {
        if (const auto found = problem.find(name); found != problem.end() && !found->is_null()) {
            keys = found->get<std::int64_t>();
        }
    };
    bound("window_left", mask.window_left);
    bound("window_right", mask.window_right);
    if (problem.value("mask_alignment", "") == to_string(MaskAlignment::top_left)) {
        mask.mask_alignment = MaskAlignment::top_left;
    }
    return mask_text(mask);
}

/// Candidates of a tuning that have a time, the fastest first, those timed in full before the
/// others.
std::vector<const Json*> ranked(const Json& tuning) {
    std::vector<const Json*> all;
    for (const Json& candidate : tuning.at("candidates")) {
        if (candidate.contains("tflops")) {
            all.push_back(&candidate);
        }
    }
    std::ranges::stable_sort(all, {}, [](const Json* candidate) {
        return std::pair(candidate->at("outcome").get<std::string>() != "timed",
                         -candidate->at("tflops").get<double>());
    });
    return all;
}

Chart tune_chart(const Json& tuning) {
    const Json& problem = tuning.at("problem");
    Chart chart{
        .kind = Chart::Kind::bars,
        .title = fmt::format("B={} H={} N={} d={} {} {}", problem.at("batch").get<int>(),
                             problem.at("heads").get<int>(), problem.at("seqlen_q").get<int>(),
                             problem.at("head_dim").get<int>(),
                             problem.at("dtype").get<std::string>(), mask_name(problem)),
        .x_label = "configuration: block_q, block_kv, warps, stages (wgmma: heads a group)",
        .series = {{"presets", {}}, {"timed in full", {}}, {"screened", {}}}};
    constexpr std::size_t most_bars = 40;
    std::size_t bars = 0;
    for (const Json* candidate : ranked(tuning)) {
        if (++bars > most_bars) {
            break;
        }
        const auto name = candidate->at("configuration").get<std::string>();
        const bool preset = std::ranges::count(kernel_presets(), name, &KernelPreset::name) > 0;
        const bool timed = candidate->at("outcome").get<std::string>() == "timed";
        chart.series[preset  ? 0
                     : timed ? 1
                             : 2]
            .points.push_back({.label = name, .y = candidate->at("tflops").get<double>()});
    }
    std::erase_if(chart.series, [](const ChartSeries& series) { return series.points.empty(); });
    return chart;
}

}  // namespace

std::vector<Chart> bench_charts(const std::vector<Json>& documents) {
    std::vector<Chart> charts;
    try {
        for (const Json& document : documents) {
            for (const Json& measurement : document.at("measurements")) {
                const Json& problem = measurement.at("problem");
                Chart& chart =
                    named(charts,
                          fmt::format("{}: backward, head_dim {}, {}, {}",
                                      document.at("gpu").at("name").get<std::string>(),
                                      problem.at("head_dim").get<int>(), mask_name(problem),
                                      problem.at("dtype").get<std::string>()),
                          &Chart::title);
                chart.x_label = "sequence length";
                const auto add = [&](const Json& entry, const char* name) {
                    named(chart.series, entry.at(name).get<std::string>(), &ChartSeries::name)
                        .points.push_back({.x = problem.at("seqlen_q").get<double>(),
                                           .y = entry.at("tflops").get<double>()});
                };
                for (const Json& variant : measurement.at("variants")) {
                    add(variant, "kernel");
                }
                if (const auto peers = measurement.find("peers"); peers != measurement.end()) {
                    for (const Json& peer : *peers) {
                        add(peer, "name");
                    }
                }
            }
        }
    } catch (const nlohmann::json::exception& error) {
        throw another_kind("bench", error);
    }
    for (Chart& chart : charts) {
        for (ChartSeries& series : chart.series) {
            std::ranges::sort(series.points, {}, &ChartPoint::x);
        }
    }
    return charts;
}

std::vector<Chart> tune_charts(const std::vector<Json>& documents) {
    std::vector<Chart> charts;
    try {
        for (const Json& document : documents) {
            for (const Json& tuning : document.at("tunings")) {
                charts.push_back(tune_chart(tuning));
            }
        }
    } catch (const nlohmann::json::exception& error) {
        throw another_kind("tune", error);
    }
    std::erase_if(charts, [](const Chart& chart) { return chart.series.empty(); });
    return charts;
}

void draw_documents(const PlottedDocuments& kind, const std::vector<std::string>& files,
                    const std::string& plot, std::ostream& out) {
    if (plot.empty()) {
        throw Error(ErrorCode::invalid_argument,
                    "plot is not given: documents are for a picture, which needs a file");
    }
    std::vector<Json> documents;
    documents.reserve(files.size());
    for (const std::string& file : files) {
        documents.push_back(read_json(file));
    }
    const std::vector<Chart> charts = kind.charts(documents);
    if (charts.empty()) {
        throw Error(ErrorCode::file_error,
                    fmt::format("plot-from is '{}': it must hold the {} of a `{} --json`, and "
                                "there are none",
                                fmt::join(files, " "), kind.content, kind.command));
    }
    // Not before: a check of the file makes one.
    check_plot(plot);
    draw(charts, plot);
    out << fmt::format("{}: {} chart{} of {} document{}\n", plot, charts.size(),
                       charts.size() == 1 ? "" : "s", documents.size(),
                       documents.size() == 1 ? "" : "s");
}

}  // namespace backlight::tool
