#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"

namespace backlight::tool {

/// One kernel of a published table.
struct PublishedFigure {
    /// As this command calls it: a preset, or a peer of bench_peers.py.
    std::string kernel;
    double milliseconds = 0;
    double tflops = 0;
    double percent_of_peak = 0;
};

/// Figures that somebody has published, and what they are of.
struct PublishedTable {
    std::string name;
    std::string title;
    /// As the source gives it.
    std::string date;
    /// "batch_heads_seqlen_headdim", the mask and the type.
    std::string shape;
    bool causal = true;
    DataType dtype = DataType::bf16;
    /// The card, as its driver calls it.
    std::string gpu;
    /// How the card was set, and the rate that the source takes as its peak at that clock.
    int sm_clock_mhz = 0;
    int power_limit_watts = 0;
    double peak_tflops = 0;
    std::vector<PublishedFigure> figures;

    AttentionProblem problem() const;
    /// The figure of that kernel, or null where the table has none.
    const PublishedFigure* figure(std::string_view kernel) const noexcept;
};

/// The table of that name; throws `invalid_argument` with the names there are.
const PublishedTable& published_table(std::string_view name);

/// The presets that are steps of one development (v1, v2, …), in its order.
std::vector<std::string> numbered_presets();

/// "cuDNN" for "cudnn", "FlashAttention-2" for "fa2"; other names as they are.
std::string kernel_title(std::string_view kernel);

}  // namespace backlight::tool
