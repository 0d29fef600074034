#include "tune_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "arguments.hpp"
#include "bench_report.hpp"
#include "text_table.hpp"
#include "tuning/statistics.hpp"

namespace backlight::tool {

namespace {

using Json = nlohmann::ordered_json;

constexpr const char* unknown = "-";

/// Candidates with a median, the fastest first, those timed in full before the others.
std::vector<const TuneCandidate*> ranked(const TuneReport& report) {
    std::vector<const TuneCandidate*> all;
    for (const TuneCandidate& candidate : report.candidates) {
        if (candidate.median_milliseconds > 0) {
            all.push_back(&candidate);
        }
    }
    std::ranges::stable_sort(all, [](const TuneCandidate* left, const TuneCandidate* right) {
        const bool left_timed = left->outcome == TuneOutcome::timed;
        const bool right_timed = right->outcome == TuneOutcome::timed;
        return left_timed != right_timed ? left_timed
                                         : left->median_milliseconds < right->median_milliseconds;
    });
    return all;
}

double rate(const TuneCandidate& candidate, const TuneReport& report) {
    return tflops(backward_flops(report.problem), candidate.median_milliseconds);
}

const TuneCandidate* preset_in(const TuneReport& report, std::string_view name) {
    const auto found = std::ranges::find(report.candidates, name, &TuneCandidate::preset);
    return found != report.candidates.end() ? &*found : nullptr;
}

std::string percent_faster(std::optional<double> speed) {
    return speed ? fmt::format("{:+.1f}%", 100 * (*speed - 1)) : unknown;
}

std::vector<std::string> row(const TuneCandidate& candidate, const TuneReport& report) {
    const auto& resources = candidate.resources;
    std::vector<std::string> cells = {
        candidate_name(candidate) +
            (candidate.config == report.winner && !winner_is_wrong(report) ? " *" : ""),
        candidate.from_database ? "known" : to_string(candidate.outcome),
        resources ? fmt::format("{:.0f} ms", resources->compile_milliseconds) : unknown,
        resources ? fmt::format("{}", resources->registers) : unknown,
        resources ? fmt::format("{} B", resources->spill_store_bytes) : unknown,
        fmt::format("{:.4f} ms", candidate.median_milliseconds),
        fmt::format("{:.1f}%", 100 * candidate.noise),
        fmt::format("{:.2f}", rate(candidate, report))};
    for (const KernelPreset& preset : kernel_presets()) {
        cells.push_back(percent_faster(speed_against(candidate, report, preset.name)));
    }
    return cells;
}

Json candidate_json(const TuneCandidate& candidate, const TuneReport& report) {
    Json entry = {{"configuration", candidate_name(candidate)},
                  {"config", to_json(candidate.config)},
                  {"outcome", to_string(candidate.outcome)},
                  {"from_database", candidate.from_database},
                  {"kernel_digest", candidate.kernel_digest}};
    if (!candidate.note.empty()) {
        entry["note"] = candidate.note;
    }
    if (candidate.resources) {
        entry["resources"] = to_json(*candidate.resources);
    }
    if (candidate.median_milliseconds > 0) {
        entry["median_ms"] = candidate.median_milliseconds;
        entry["noise"] = candidate.noise;
        entry["tflops"] = rate(candidate, report);
        entry["baseline_ms"] = candidate.baseline_milliseconds;
        entry["samples_ms"] = candidate.samples_milliseconds;
    }
    return entry;
}

/// The candidates with a time, the fastest first, and how much faster than the presets they are.
std::string ranking(const TuneReport& report) {
    std::vector<std::string> heading = {"configuration", "outcome", "compile", "registers",
                                        "spilled",       "median",  "noise",   "TFLOP/s"};
    for (const KernelPreset& preset : kernel_presets()) {
        heading.push_back(fmt::format("over {}", preset.name));
    }
    TextTable table(std::move(heading), 2);
    constexpr int most_others = 10;
    int others = 0;
    for (const TuneCandidate* candidate : ranked(report)) {
        if (candidate->outcome == TuneOutcome::timed || others++ < most_others) {
            table.add(row(*candidate, report));
        }
    }
    return table.text();
}

/// What was tried, in the order of trying.
std::string unranked(const TuneReport& report) {
    TextTable table({"configuration", "outcome"}, 2);
    for (const TuneCandidate& candidate : report.candidates) {
        if (candidate.median_milliseconds > 0) {
            table.add({candidate_name(candidate), to_string(candidate.outcome)});
        }
    }
    return table.text();
}

}  // namespace

std::string candidate_name(const TuneCandidate& candidate) {
    const TileConfig& config = candidate.config;
    if (!candidate.preset.empty()) {
        return candidate.preset;
    }
    TileConfig usual = config;
    usual.sequence_lengths = {};
    usual.programmatic_dependent_launch = true;
    // A preset's tiles otherwise launched are told by their numbers, as they always were.
    const std::string tiles = groups_heads(config.family)
                                  ? config_name(usual)
                                  : fmt::format("tile_{}_{}_{}_{}", config.block_q, config.block_kv,
                                                config.warps, config.stages);
    return fmt::format(
        "{}{}{}", tiles,
        config.sequence_lengths == SequenceLengths::compile_time ? " constant lengths" : "",
        config.programmatic_dependent_launch ? "" : " no early launch");
}

const TuneCandidate* winner_of(const TuneReport& report) {
    const auto found = std::ranges::find(report.candidates, report.winner, &TuneCandidate::config);
    return found != report.candidates.end() ? &*found : nullptr;
}

bool winner_is_wrong(const TuneReport& report) {
    const TuneCandidate* winner = winner_of(report);
    return winner != nullptr && winner->outcome == TuneOutcome::wrong;
}

std::optional<double> speed_against(const TuneCandidate& candidate, const TuneReport& report,
                                    std::string_view preset) {
    const TuneCandidate* other = preset_in(report, preset);
    if (other == nullptr || other->outcome != TuneOutcome::timed ||
        candidate.outcome != TuneOutcome::timed) {
        return std::nullopt;
    }
    const double speed = other->median_milliseconds / candidate.median_milliseconds;
    return candidate.baseline_milliseconds > 0 && other->baseline_milliseconds > 0
               ? speed * candidate.baseline_milliseconds / other->baseline_milliseconds
               : speed;
}

std::vector<std::string> presets_that_beat_the_winner(const TuneReport& report) {
    std::vector<std::string> names;
    const TuneCandidate* winner = winner_of(report);
    for (const KernelPreset& preset : kernel_presets()) {
        const TuneCandidate* other = preset_in(report, preset.name);
        const auto speed =
            winner != nullptr ? speed_against(*winner, report, preset.name) : std::nullopt;
        if (speed && tuning::beats({.time = *speed, .noise = other->noise},
                                   {.time = 1, .noise = winner->noise})) {
            names.emplace_back(preset.name);
        }
    }
    return names;
}

std::string format_tune(const TuneReport& report, TimesOf times) {
    std::map<std::string, int> counts;
    for (const TuneCandidate& candidate : report.candidates) {
        ++counts[candidate.from_database ? "known" : to_string(candidate.outcome)];
    }
    std::string text =
        times == TimesOf::gpu
            ? ranking(report) + (winner_is_wrong(report)
                                     ? "\nNo winner is named: what plans use is wrong. "
                                     : "\n* used from now on. ")
            : unranked(report) +
                  "\nThe emulated device's times say nothing about a GPU: no winner is "
                  "named. ";
    text += fmt::format("{} configurations in {:.1f} s:", report.candidates.size(), report.seconds);
    for (const auto& [outcome, count] : counts) {
        text += fmt::format(" {} {}", count, outcome);
    }
    text += '\n';
    for (const TuneCandidate& candidate : report.candidates) {
        if (candidate.outcome == TuneOutcome::wrong || candidate.outcome == TuneOutcome::refused) {
            text += fmt::format("{}: {}: {}\n", to_string(candidate.outcome),
                                candidate_name(candidate), candidate.note);
        }
    }
    return text;
}

Json to_json(const TuneReport& report, TimesOf times) {
    const bool ranked = times == TimesOf::gpu && !winner_is_wrong(report);
    const TuneCandidate* winner = ranked ? winner_of(report) : nullptr;
    Json document = {{"problem", to_json(report.problem)},
                     {"flops", backward_flops(report.problem)},
                     {"winner", ranked ? Json(to_json(report.winner)) : Json(nullptr)},
                     {"seconds", report.seconds},
                     {"complete", report.complete}};
    Json speeds = Json::object();
    for (const KernelPreset& preset : kernel_presets()) {
        const auto speed =
            winner != nullptr ? speed_against(*winner, report, preset.name) : std::nullopt;
        speeds[std::string(preset.name)] = speed ? Json(*speed) : Json(nullptr);
    }
    document["speed_of_winner_against"] = std::move(speeds);
    document["presets_that_beat_the_winner"] =
        ranked ? presets_that_beat_the_winner(report) : std::vector<std::string>();
    Json candidates = Json::array();
    for (const TuneCandidate& candidate : report.candidates) {
        candidates.push_back(candidate_json(candidate, report));
    }
    document["candidates"] = std::move(candidates);
    return document;
}

}  // namespace backlight::tool
