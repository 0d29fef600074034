#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clock_state.hpp"
#include "environment.hpp"
#include "peers_run.hpp"
#include "problem_check.hpp"
#include "published_table.hpp"

namespace backlight::tool {

// What a reproduction of a published table has measured, and what follows from it: pure functions,
// no GPU.

/// Of the JSON; a change that a reader of the document would notice makes it another.
inline constexpr int reproduction_schema = 1;

/// A kernel that has no figures.
struct AbsentKernel {
    std::string kernel;
    std::string reason;
};

struct Reproduction {
    const PublishedTable& table;
    /// Presets that were to be measured, in order, but for those left out.
    std::vector<std::string> kernels;
    std::vector<AbsentKernel> left_out;
    Environment environment;
    /// "cool" or "hot".
    std::string regime;
    /// What `bench` has written of the kernels alone, in this process; null where it failed.
    nlohmann::ordered_json bench;
    std::vector<ProblemReport> accuracy;
    /// What ended the measurement in this process, if something did.
    std::string failure;
    std::string bus_id;
    ClockState clocks_before, clocks_after;
    /// In the process of bench_peers.py.
    PeersRun peers;
    std::vector<std::string> wanted_peers;
};

/// Relative L2 errors of dQ, dK and dV.
using GradientErrors = std::array<std::optional<double>, 3>;

/// A line of the table. Where the peers' process has a time of the kernel, it is that one, so that
/// all that stands beside each other was interleaved.
struct ReproducedRow {
    std::string kernel;
    bool ours = true;
    bool beside_peers = false;
    std::optional<double> median_ms, p10_ms, p90_ms, tflops;
    /// Without peers, in this process.
    std::optional<double> alone_median_ms;
    GradientErrors errors;
    /// What they are compared with.
    std::string reference;
    /// Why there is no time, or what is wrong with the gradients.
    std::string problem;
};

/// Whether the card is the one of the table.
bool is_published_card(const Reproduction& reproduction);

/// Peers, then kernels in the order in which they were asked for, then those left out. Throws
/// `file_error` where the peers' document is not what bench_peers.py writes.
std::vector<ReproducedRow> rows_of(const Reproduction& reproduction);

/// The SM clock while kernels ran, in both processes.
ObservedClock clock_of(const Reproduction& reproduction);

std::string format_reproduction(const Reproduction& reproduction);
nlohmann::ordered_json to_json(const Reproduction& reproduction);

}  // namespace backlight::tool
