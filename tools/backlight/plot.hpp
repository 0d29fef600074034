#pragma once

#include <string>
#include <vector>

namespace backlight::tool {

struct ChartPoint {
    /// On a numeric axis.
    double x = 0;
    /// On an axis of names.
    std::string label;
    double y = 0;
};

struct ChartSeries {
    std::string name;
    std::vector<ChartPoint> points;
};

/// TFLOP/s over something.
struct Chart {
    enum class Kind {
        /// Over a sequence length, a line a series.
        lines,
        /// Over names, a colour a series.
        bars,
    };
    Kind kind = Kind::lines;
    std::string title;
    std::string x_label;
    std::vector<ChartSeries> series;
};

/// The script that makes gnuplot draw the charts, one below the other, into the file.
std::string gnuplot_script(const std::vector<Chart>& charts, const std::string& file);

/// Throws unless `draw` can be expected to work: `invalid_argument` unless the file ends in .svg or
/// .png, `file_error` if it cannot be written or gnuplot is not there. Empty is always good.
void check_plot(const std::string& file);

/// Runs gnuplot. Throws `file_error` with what it says.
void draw(const std::vector<Chart>& charts, const std::string& file);

}  // namespace backlight::tool
