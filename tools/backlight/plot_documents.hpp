#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "plot.hpp"

namespace backlight::tool {

/// A kind of document that pictures are made of: what a subcommand writes with `--json`.
struct PlottedDocuments {
    /// The subcommand.
    const char* command;
    /// What such a document must hold one of.
    const char* content;
    std::vector<Chart> (*charts)(const std::vector<nlohmann::ordered_json>& documents);
};

/// A chart for each head dimension, mask and type in documents that `bench` wrote: kernels, and
/// peers where a measurement has `peers` with `name` and `tflops`. Throws `file_error` for a
/// document of another kind.
std::vector<Chart> bench_charts(const std::vector<nlohmann::ordered_json>& documents);
inline constexpr PlottedDocuments bench_documents = {"bench", "measurements", bench_charts};

/// A chart for each problem in documents that `tune` wrote: TFLOP/s over configurations, the
/// fastest first. Throws `file_error` for a document of another kind.
std::vector<Chart> tune_charts(const std::vector<nlohmann::ordered_json>& documents);
inline constexpr PlottedDocuments tune_documents = {"tune", "tunings", tune_charts};

/// Draws what documents in files hold into the file `plot`, and tells on `out` that it is there.
/// Throws `invalid_argument` where `plot` is empty, and `file_error`.
void draw_documents(const PlottedDocuments& kind, const std::vector<std::string>& files,
                    const std::string& plot, std::ostream& out);

}  // namespace backlight::tool
