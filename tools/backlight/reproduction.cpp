// What both processes have measured, brought together line by line.

#include "reproduction.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "backlight/error.hpp"
#include "bench_report.hpp"

namespace backlight::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* our_prefix = "backlight/";

std::optional<double> number(const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number() ? std::optional(found->get<double>())
                                                       : std::nullopt;
}

void set_times(ReproducedRow& row, const std::vector<double>& milliseconds, double flops) {
    if (milliseconds.empty()) {
        return;
    }
    row.median_ms = median(milliseconds);
    row.p10_ms = percentile(milliseconds, 0.1);
    row.p90_ms = percentile(milliseconds, 0.9);
    row.tflops = tflops(flops, *row.median_ms);
}

/// The one cell of the peers' document; null where there is none.
Json peers_cell(const Json& document) {
    return document.is_object() && !document.at("cells").empty() ? document.at("cells").front()
                                                                 : Json();
}

/// Contestants of the regime by name; null where there are none.
Json contestants_of(const Json& cell, const std::string& regime) {
    if (!cell.is_object() || !cell.at("regimes").contains(regime)) {
        return {};
    }
    return cell.at("regimes").at(regime).at("contestants");
}

/// The samples whose launches did not come late, as bench_peers.py itself counts them.
std::vector<double> good_samples(const Json& contestant) {
    const auto late = contestant.at("late").get<std::set<std::size_t>>();
    const auto all = contestant.at("samples_ms").get<std::vector<double>>();
    std::vector<double> good;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!late.contains(i)) {
            good.push_back(all[i]);
        }
    }
    return good;
}

/// The kernels of the one problem that `bench` was given; none where it has not measured.
Json variants_of(const Json& bench) {
    return bench.is_object() ? bench.at("measurements").front().at("variants") : Json::array();
}

/// What the peers' process says of the contestant's gradients in the table's type; null if nothing.
Json accuracy_in(const Json& document, const std::string& contestant, DataType dtype) {
    if (!document.is_object()) {
        return {};
    }
    for (const Json& entry : document.at("accuracy")) {
        if (entry.at("dtype") == to_string(dtype) && entry.at("contestants").contains(contestant)) {
            return entry.at("contestants").at(contestant);
        }
    }
    return {};
}

void add_peers_accuracy(ReproducedRow& row, const Json& accuracy) {
    if (!accuracy.is_object() || !accuracy.contains("against_fp32")) {
        return;
    }
    constexpr std::array names = {"d_q", "d_k", "d_v"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        row.errors[i] = number(accuracy.at("against_fp32").at(names[i]), "relative_l2");
    }
    row.reference = "PyTorch fp32, 2 heads";
}

/// Times and failures of a contestant, if it has any.
void add_peers_times(ReproducedRow& row, const Json& cell, const Json& contestants,
                     const std::string& name, double flops) {
    if (contestants.is_object() && contestants.contains(name)) {
        set_times(row, good_samples(contestants.at(name)), flops);
        row.beside_peers = row.median_ms.has_value();
        row.problem = contestants.at(name).value("error", "");
    }
    if (cell.is_object() && cell.contains("errors") && cell.at("errors").contains(name)) {
        row.problem = cell.at("errors").at(name).get<std::string>();
    }
    if (!row.beside_peers && row.problem.empty() && cell.is_object()) {
        row.problem = "no sample in the peers' process";
    }
}

ReproducedRow peer_row(const Reproduction& reproduction, const Json& cell, const Json& contestants,
                       const std::string& name) {
    ReproducedRow row{.kernel = name, .ours = false};
    add_peers_times(row, cell, contestants, name, backward_flops(reproduction.table.problem()));
    if (!cell.is_object()) {
        row.problem = reproduction.peers.problem.empty() ? "the peers' process measured nothing"
                                                         : reproduction.peers.problem;
    }
    add_peers_accuracy(row,
                       accuracy_in(reproduction.peers.document, name, reproduction.table.dtype));
    return row;
}

/// What our own comparison says, which is of all heads.
void add_own_accuracy(ReproducedRow& row, const ProblemReport& report) {
    for (std::size_t i = 0; i < report.tensors.size(); ++i) {
        row.errors.at(i) = report.tensors[i].accuracy.relative_l2;
    }
    row.reference = to_string(report.problem.reference);
    if (!report.passed()) {
        row.problem = fmt::format("wrong: {}", fmt::join(report.failures, "; "));
    }
}

ReproducedRow our_row(const Reproduction& reproduction, const Json& cell, const Json& contestants,
                      const std::string& name) {
    const double flops = backward_flops(reproduction.table.problem());
    ReproducedRow row{.kernel = name};
    add_peers_times(row, cell, contestants, our_prefix + name, flops);
    for (const Json& variant : variants_of(reproduction.bench)) {
        if (variant.at("kernel") == name) {
            row.alone_median_ms = number(variant, "median_ms");
            if (!row.beside_peers) {
                set_times(row, variant.at("samples_ms").get<std::vector<double>>(), flops);
            }
        }
    }
    for (const ProblemReport& report : reproduction.accuracy) {
        if (report.kernel == name) {
            add_own_accuracy(row, report);
        }
    }
    if (!row.median_ms && row.problem.empty()) {
        row.problem = reproduction.failure;
    }
    return row;
}

}  // namespace

bool is_published_card(const Reproduction& reproduction) {
    return reproduction.environment.gpu == reproduction.table.gpu;
}

std::vector<ReproducedRow> rows_of(const Reproduction& reproduction) try {
    const Json cell = peers_cell(reproduction.peers.document);
    const Json contestants = contestants_of(cell, reproduction.regime);
    std::vector<ReproducedRow> rows;
    for (const std::string& peer : reproduction.wanted_peers) {
        rows.push_back(peer_row(reproduction, cell, contestants, peer));
    }
    for (const std::string& kernel : reproduction.kernels) {
        rows.push_back(our_row(reproduction, cell, contestants, kernel));
    }
    for (const AbsentKernel& absent : reproduction.left_out) {
        rows.push_back({.kernel = absent.kernel, .problem = absent.reason});
    }
    return rows;
} catch (const nlohmann::json::exception& error) {
    throw Error(
        ErrorCode::file_error,
        fmt::format("the peers' document is not what bench_peers.py writes: {}", error.what()));
}

ObservedClock clock_of(const Reproduction& reproduction) {
    std::vector<double> readings;
    const auto add_readings = [&](const Json& timed) {
        for (const Json& reading : timed.at("sm_clock_mhz")) {
            if (reading.is_number()) {
                readings.push_back(reading.get<double>());
            }
        }
    };
    std::ranges::for_each(variants_of(reproduction.bench), add_readings);
    const Json contestants =
        contestants_of(peers_cell(reproduction.peers.document), reproduction.regime);
    if (contestants.is_object()) {
        std::ranges::for_each(contestants, add_readings);
    }
    return observed_clock(readings, reproduction.clocks_before.highest_sm_clock_mhz);
}

}  // namespace backlight::tool
