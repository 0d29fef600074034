// The table and the JSON of a reproduction.

#include <fmt/format.h>

#include <algorithm>

#include "bench_report.hpp"
#include "reproduction.hpp"
#include "text_table.hpp"

namespace backlight::tool {

namespace {

/// The document is sent to others, whom the folders of a machine do not concern.
std::vector<std::string> file_names_only(std::vector<std::string> command) {
    for (std::string& word : command) {
        word = word.substr(word.rfind('/') + 1);
    }
    return command;
}

using Json = nlohmann::ordered_json;

constexpr const char* unknown = "-";
constexpr const char* how_to_send =
    "Open an issue with this file in the project's repository: it holds all that is needed, and "
    "nothing of the machine but the names and versions of GPU, driver and software";

std::string number(std::optional<double> value, const char* form) {
    return value ? fmt::format(fmt::runtime(form), *value) : unknown;
}

/// Of the peak that the table's source takes; only of its own card.
std::optional<double> percent_of_published_peak(const Reproduction& reproduction,
                                                std::optional<double> tflops) {
    return tflops && is_published_card(reproduction)
               ? std::optional(100 * *tflops / reproduction.table.peak_tflops)
               : std::nullopt;
}

/// Above 1: faster than published; only of the table's own card.
std::optional<double> ratio_to_published(const Reproduction& reproduction,
                                         const ReproducedRow& row) {
    const PublishedFigure* const figure = reproduction.table.figure(row.kernel);
    return figure != nullptr && row.median_ms && is_published_card(reproduction)
               ? std::optional(figure->milliseconds / *row.median_ms)
               : std::nullopt;
}

/// The peer's time over the row's, where both were measured in one process.
std::optional<double> ratio_to_peer(const std::vector<ReproducedRow>& rows,
                                    const ReproducedRow& row, const std::string& peer) {
    const auto found = std::ranges::find(rows, peer, &ReproducedRow::kernel);
    return row.beside_peers && found != rows.end() && found->median_ms
               ? std::optional(*found->median_ms / *row.median_ms)
               : std::nullopt;
}

/// Which card it is, for a person.
std::string card_statement(const Reproduction& reproduction) {
    const PublishedTable& table = reproduction.table;
    const std::string& gpu = reproduction.environment.gpu;
    if (is_published_card(reproduction)) {
        return fmt::format("This is the card of the published table ({}).", table.gpu);
    }
    return fmt::format(
        "This is NOT the card of the published table: it is {}, the table is of {}. The published "
        "figures are shown and not compared: there is no percentage of that card's peak and no "
        "ratio.",
        gpu, table.gpu);
}

/// How the clocks were, and whether that is how the published ones were.
std::string clock_statement(const Reproduction& reproduction, const ObservedClock& clock) {
    const PublishedTable& table = reproduction.table;
    std::string text;
    switch (clock.behaviour) {
        case ClockBehaviour::unknown:
            text = "The SM clock could not be read.";
            break;
        case ClockBehaviour::held:
            text = fmt::format("The SM clock stayed at {:.0f} MHz, as a locked one does.",
                               *clock.median_mhz);
            break;
        case ClockBehaviour::at_highest:
            text = fmt::format(
                "The SM clock stayed at {:.0f} MHz, the card's highest: whether it is locked there "
                "does not show.",
                *clock.median_mhz);
            break;
        case ClockBehaviour::moving:
            text = fmt::format(
                "The SM clock moved between {:.0f} and {:.0f} MHz: it is not locked, or power or "
                "heat took it below its lock.",
                *clock.lowest_mhz, *clock.highest_mhz);
            break;
    }
    if (!is_published_card(reproduction)) {
        return text;
    }
    const bool as_published = clock.lowest_mhz &&
                              same_clock(*clock.lowest_mhz, table.sm_clock_mhz) &&
                              same_clock(*clock.highest_mhz, table.sm_clock_mhz);
    if (as_published) {
        return text + " The published figures are of this clock.";
    }
    return text + fmt::format(
                      " The published figures are of {} MHz, to which the peak of {} TFLOP/s "
                      "belongs: percentages and ratios hold at that clock only.",
                      table.sm_clock_mhz, table.peak_tflops);
}

/// Nothing for a card to which the clock of the table does not belong.
std::vector<std::string> commands_of(const Reproduction& reproduction) {
    return is_published_card(reproduction)
               ? locking_commands(reproduction.bus_id, reproduction.table.sm_clock_mhz,
                                  reproduction.table.power_limit_watts)
               : std::vector<std::string>();
}

Json published_json(const PublishedFigure* figure) {
    if (figure == nullptr) {
        return nullptr;
    }
    return {{"latency_ms", figure->milliseconds},
            {"tflops", figure->tflops},
            {"percent_of_peak", figure->percent_of_peak}};
}

Json row_json(const Reproduction& reproduction, const std::vector<ReproducedRow>& rows,
              const ReproducedRow& row) {
    Json object = {
        {"kernel", row.kernel},
        {"measured", !row.median_ms     ? Json(nullptr)
                     : row.beside_peers ? Json("beside peers")
                                        : Json("alone")},
        {"median_ms", or_null(row.median_ms)},
        {"p10_ms", or_null(row.p10_ms)},
        {"p90_ms", or_null(row.p90_ms)},
        {"tflops", or_null(row.tflops)},
        {"percent_of_published_peak", or_null(percent_of_published_peak(reproduction, row.tflops))},
        {"published", published_json(reproduction.table.figure(row.kernel))},
        {"speed_ratio_to_published", or_null(ratio_to_published(reproduction, row))}};
    if (row.ours) {
        for (const std::string& peer : reproduction.wanted_peers) {
            object["speed_ratio_to_peers"][peer] = or_null(ratio_to_peer(rows, row, peer));
        }
        object["alone_median_ms"] = or_null(row.alone_median_ms);
    }
    object["relative_l2_error"] = {{"dQ", or_null(row.errors[0])},
                                   {"dK", or_null(row.errors[1])},
                                   {"dV", or_null(row.errors[2])},
                                   {"reference", row.reference}};
    object["problem"] = row.problem.empty() ? Json(nullptr) : Json(row.problem);
    return object;
}

Json accuracy_json(const ProblemReport& report) {
    Json tensors = Json::object();
    for (const TensorReport& tensor : report.tensors) {
        tensors[tensor.tensor] = {{"relative_l2", tensor.accuracy.relative_l2},
                                  {"worst_row", tensor.accuracy.worst_row},
                                  {"allowed_relative_l2", tensor.tolerance.relative_l2},
                                  {"allowed_worst_row", tensor.tolerance.worst_row}};
    }
    return {{"kernel", report.kernel},
            {"problem", to_string(report.problem)},
            {"reference", to_string(report.problem.reference)},
            {"passed", report.passed()},
            {"failures", report.failures},
            {"gradients", tensors}};
}

Json peers_json(const Reproduction& reproduction) {
    const PeersRun& peers = reproduction.peers;
    return {{"wanted", reproduction.wanted_peers},
            {"present", peers.document.is_object()},
            {"problem", peers.problem.empty() ? Json(nullptr) : Json(peers.problem)},
            {"versions", peers.versions},
            {"command", file_names_only(peers.command)},
            {"document", peers.document}};
}

std::string figures_table(const Reproduction& reproduction,
                          const std::vector<ReproducedRow>& rows) {
    TextTable table({"kernel", "ms", "TFLOP/s", "% peak", "published: ms", "TFLOP/s", "% peak",
                     "ratio", "over FA2"});
    for (const ReproducedRow& row : rows) {
        const PublishedFigure* const figure = reproduction.table.figure(row.kernel);
        const auto published = [&](double PublishedFigure::*value) {
            return figure != nullptr ? std::optional(figure->*value) : std::nullopt;
        };
        table.add({kernel_title(row.kernel), number(row.median_ms, "{:.4f}"),
                   number(row.tflops, "{:.2f}"),
                   number(percent_of_published_peak(reproduction, row.tflops), "{:.2f}"),
                   number(published(&PublishedFigure::milliseconds), "{:.4f}"),
                   number(published(&PublishedFigure::tflops), "{:.2f}"),
                   number(published(&PublishedFigure::percent_of_peak), "{:.2f}"),
                   number(ratio_to_published(reproduction, row), "{:.3f}"),
                   row.ours ? number(ratio_to_peer(rows, row, "fa2"), "{:.3f}") : unknown});
    }
    return table.text();
}

/// How the times scatter, what a kernel takes without peers, and how far its gradients are off.
std::string details_table(const std::vector<ReproducedRow>& rows) {
    TextTable table({"kernel", "p10 ms", "p90 ms", "alone ms", "error: dQ", "dK", "dV", "against"});
    for (const ReproducedRow& row : rows) {
        table.add({kernel_title(row.kernel), number(row.p10_ms, "{:.4f}"),
                   number(row.p90_ms, "{:.4f}"), number(row.alone_median_ms, "{:.4f}"),
                   number(row.errors[0], "{:.1e}"), number(row.errors[1], "{:.1e}"),
                   number(row.errors[2], "{:.1e}"),
                   row.reference.empty() ? unknown : row.reference});
    }
    return table.text();
}

}  // namespace

std::string format_reproduction(const Reproduction& reproduction) {
    const std::vector<ReproducedRow> rows = rows_of(reproduction);
    std::string text = card_statement(reproduction) + "\n" +
                       clock_statement(reproduction, clock_of(reproduction)) + "\n\n";
    text += figures_table(reproduction, rows);
    text += "\n" + details_table(rows);
    for (const ReproducedRow& row : rows) {
        // What keeps all peers away is told once, below.
        if (!row.problem.empty() && row.problem != reproduction.peers.problem) {
            text += fmt::format("\n{}: {}\n", kernel_title(row.kernel), row.problem);
        }
    }
    if (!reproduction.failure.empty()) {
        text += fmt::format("\nThe measurement in this process ended early: {}\n",
                            reproduction.failure);
    }
    if (!reproduction.peers.problem.empty()) {
        text += fmt::format("\nPeers: {}\n", reproduction.peers.problem);
    }
    return text;
}

Json to_json(const Reproduction& reproduction) {
    const PublishedTable& table = reproduction.table;
    const std::vector<ReproducedRow> rows = rows_of(reproduction);
    Json kernels = Json::array();
    for (const ReproducedRow& row : rows) {
        kernels.push_back(row_json(reproduction, rows, row));
    }
    Json accuracy = Json::array();
    for (const ProblemReport& report : reproduction.accuracy) {
        accuracy.push_back(accuracy_json(report));
    }
    const ObservedClock clock = clock_of(reproduction);
    Json document = {
        {"schema", reproduction_schema},
        {"reproduces", table.name},
        {"send", how_to_send},
        {"published",
         {{"title", table.title},
          {"date", table.date},
          {"gpu", table.gpu},
          {"sm_clock_mhz", table.sm_clock_mhz},
          {"power_limit_watts", table.power_limit_watts},
          {"peak_tflops", table.peak_tflops}}},
        {"published_card", is_published_card(reproduction)},
        {"card", card_statement(reproduction)},
        {"clocks",
         {{"before", to_json(reproduction.clocks_before)},
          {"during", to_json(clock)},
          {"after", to_json(reproduction.clocks_after)},
          {"statement", clock_statement(reproduction, clock)},
          {"commands_to_lock", commands_of(reproduction)}}},
        {"cells", {{{"problem", to_json(table.problem())}, {"kernels", std::move(kernels)}}}},
        {"accuracy", std::move(accuracy)},
        {"failure", reproduction.failure.empty() ? Json(nullptr) : Json(reproduction.failure)},
        {"peers", peers_json(reproduction)}};
    document.update(to_json(reproduction.environment));
    if (reproduction.bench.is_object()) {
        // The protocol, and every sample of the kernels alone.
        document.update(reproduction.bench);
    }
    return document;
}

}  // namespace backlight::tool
