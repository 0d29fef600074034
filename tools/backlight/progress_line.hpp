#pragma once

#include <cstddef>
#include <ostream>
#include <string_view>

namespace backlight::tool {

/// Columns of the terminal that the stream writes to: only the standard streams can have one; 0
/// where it is none.
std::size_t terminal_columns(const std::ostream& out);

/// One line that is written over again while work goes on, on a terminal; elsewhere nothing. For
/// one thread at a time.
class ProgressLine {
  public:
    explicit ProgressLine(std::ostream& out);
    /// `columns` of the terminal; 0 where the output is none.
    ProgressLine(std::ostream& out, std::size_t columns);
    /// Leaves no unfinished line.
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    bool on_terminal() const noexcept { return columns_ > 0; }
    /// What does not fit is cut off.
    void show(std::string_view text);
    /// Wipes the line.
    void clear();

  private:
    void overwrite(std::string_view text);

    std::ostream& out_;
    std::size_t columns_;
    bool shown_ = false;
};

}  // namespace backlight::tool
