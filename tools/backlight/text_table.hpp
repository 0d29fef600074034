#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace backlight::tool {

/// What a terminal is wide enough for nearly everywhere.
inline constexpr std::size_t usual_terminal_columns = 100;

/// The text, or its beginning and "…" where it has more characters than that.
std::string shortened(std::string_view text, std::size_t most_characters);

/// Rows of text in aligned columns: names to the left, figures to the right.
class TextTable {
  public:
    /// The first `names` columns hold names, the others figures.
    explicit TextTable(std::vector<std::string> heading, std::size_t names = 1) : names_(names) {
        add(std::move(heading));
    }

    /// As many cells as the heading has.
    void add(std::vector<std::string> row) { rows_.push_back({std::move(row), {}}); }

    /// A line below the last row, cut where it is wider than a terminal.
    void add_below(std::string_view text);

    /// The heading, a line under it, the rows; each line ends in a newline.
    std::string text() const;

  private:
    struct Row {
        std::vector<std::string> cells;
        /// Whole lines.
        std::string below;
    };

    std::size_t names_;
    std::vector<Row> rows_;
};

}  // namespace backlight::tool
