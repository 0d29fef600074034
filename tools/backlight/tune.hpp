#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "problem_features.hpp"
#include "session/device_choice.hpp"

namespace backlight::tool {

struct TuneCommandOptions {
    DeviceChoice device;
    /// "B_H_N_d"; empty: 8_16_4096_128, unless there are databases to merge or to export.
    std::vector<std::string> shapes;
    bool causal = true;
    bool full = false;
    DataType dtype = DataType::bf16;
    ProblemFeatures features;
    /// "mma", "wgmma", or empty: all.
    std::string kernel_family;
    /// Only these, and the presets; empty: every legal configuration.
    std::vector<std::string> tiles;
    /// Of each problem.
    double budget_seconds = 60;
    int repeats = 20;
    bool retime = false;
    /// Empty: the Runtime's.
    std::string database;
    /// Databases to be merged into that one first.
    std::vector<std::string> merge;
    /// File for the records of the database that plans may use: what a distribution ships.
    std::string export_file;
    /// File, "-" for `out` (and no tables then), or empty.
    std::string json;
    /// .svg or .png, or empty.
    std::string plot;
    /// Documents that were written before: draw these and do nothing else.
    std::vector<std::string> plot_from;
};

/// "90", "90s", "1.5m" or "1h", in seconds. Throws `invalid_argument`.
double parse_budget(const std::string& text);

/// Merges, tunes, exports and reports, as far as each is asked for. Progress goes to `errors`
/// while that is a terminal. Throws Error.
void tune(const TuneCommandOptions& options, std::ostream& out, std::ostream& errors);

}  // namespace backlight::tool
