#pragma once

#include <string>
#include <vector>

namespace backlight::tool {

/// Rows of text in aligned columns: the first column to the left, all others to the right.
class TextTable {
  public:
    explicit TextTable(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }

    /// As many cells as the heading has.
    void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }

    /// The heading, a line under it, the rows; each line ends in a newline.
    std::string text() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

}  // namespace backlight::tool
