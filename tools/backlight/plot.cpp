#include "plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "backlight/error.hpp"
#include "external_program.hpp"
#include "output_file.hpp"

namespace backlight::tool {

namespace {

constexpr const char* program = "gnuplot";

/// A string literal of gnuplot: in single quotes nothing is special but the quote.
std::string string_literal(std::string_view text) {
    std::string result = "'";
    for (const char character : text) {
        result += character == '\'' ? "''" : std::string(1, character == '\n' ? ' ' : character);
    }
    return result + "'";
}

/// A field of a data block, where a double quote or a line break would end it.
std::string field(std::string text) {
    std::ranges::replace_if(
        text, [](char character) { return character == '"' || character == '\n'; }, ' ');
    return '"' + text + '"';
}

/// A data block of all series, a block of lines each.
std::string data_block(const Chart& chart, std::size_t number) {
    std::string text = fmt::format("$chart{} << END_OF_DATA\n", number);
    std::size_t place = 0;
    for (const ChartSeries& series : chart.series) {
        for (const ChartPoint& point : series.points) {
            text += chart.kind == Chart::Kind::bars
                        ? fmt::format("{} {} {:.6g}\n", place++, field(point.label), point.y)
                        : fmt::format("{} {:.6g}\n", point.x, point.y);
        }
        text += "\n\n";
    }
    return text + "END_OF_DATA\n";
}

std::string plot_command(const Chart& chart, std::size_t number) {
    std::string text = fmt::format("set title {}\nset xlabel {}\n", string_literal(chart.title),
                                   string_literal(chart.x_label));
    text += chart.kind == Chart::Kind::bars
                ? "unset logscale x\nset xtics rotate by -45\nset style fill solid 0.8\n"
                  "set boxwidth 0.8\nset xrange [-1:*]\n"
                : "set xtics norotate\nset logscale x 2\nset xrange [*:*]\n";
    for (std::size_t i = 0; i < chart.series.size(); ++i) {
        text += i == 0 ? "plot " : ", \\\n     ";
        text += chart.kind == Chart::Kind::bars
                    ? fmt::format("$chart{} index {} using 1:3:xtic(2) with boxes", number, i)
                    : fmt::format(
                          "$chart{} index {} using 1:2 with linespoints linewidth 2 "
                          "pointtype 7",
                          number, i);
        text += " title " + string_literal(chart.series[i].name);
    }
    return text + '\n';
}

}  // namespace

std::string gnuplot_script(const std::vector<Chart>& charts, const std::string& file) {
    constexpr int width = 1000;
    constexpr int height = 480;
    const auto rows = static_cast<int>(std::max<std::size_t>(charts.size(), 1));
    const bool svg = file.ends_with(".svg");
    std::string script =
        fmt::format("set terminal {} size {},{} noenhanced{}\n", svg ? "svg" : "pngcairo", width,
                    height * rows, svg ? " background rgb 'white'" : "");
    script += fmt::format(
        "set output {}\nset ylabel 'TFLOP/s'\nset yrange [0:*]\nset grid ytics\n"
        "set key outside right\n",
        string_literal(file));
    for (std::size_t i = 0; i < charts.size(); ++i) {
        script += data_block(charts[i], i);
    }
    script += fmt::format("set multiplot layout {},1\n", rows);
    for (std::size_t i = 0; i < charts.size(); ++i) {
        script += plot_command(charts[i], i);
    }
    return script + "unset multiplot\n";
}

void check_plot(const std::string& file) {
    if (file.empty()) {
        return;
    }
    if (!file.ends_with(".svg") && !file.ends_with(".png")) {
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("plot is '{}': it must end in .svg or .png", file));
    }
    if (found_on_path(program).empty()) {
        throw Error(ErrorCode::file_error,
                    fmt::format("plot is '{}': it is drawn by gnuplot, which is not on the PATH; "
                                "install it (Debian package gnuplot-nox)",
                                file));
    }
    if (!can_be_written(file)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("plot is '{}': the file could not be written", file));
    }
}

void draw(const std::vector<Chart>& charts, const std::string& file) {
    const TemporaryFile script("gnuplot");
    std::ofstream(script.path()) << gnuplot_script(charts, file);
    const ProgramResult result = run_program({found_on_path(program), script.path()});
    if (!result.succeeded) {
        throw Error(ErrorCode::file_error,
                    fmt::format("plot is '{}': gnuplot failed: {}", file, result.output));
    }
}

}  // namespace backlight::tool
