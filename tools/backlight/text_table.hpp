#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace backlight::tool {

/// Rows of text in aligned columns: names to the left, figures to the right.
class TextTable {
  public:
    /// The first `names` columns hold names, the others figures.
    explicit TextTable(std::vector<std::string> heading, std::size_t names = 1) : names_(names) {
        rows_.push_back(std::move(heading));
    }

    /// As many cells as the heading has.
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    /// The heading, a line under it, the rows; each line ends in a newline.
    std::string text() const;

  private:
    std::size_t names_;
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace backlight::tool
