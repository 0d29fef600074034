#pragma once

#include <ostream>
#include <string>

namespace backlight::tool {

/// One line that is written over again while work goes on, on a terminal; elsewhere nothing.
class ProgressLine {
  public:
    explicit ProgressLine(std::ostream& out);
    ~ProgressLine();
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    void show(const std::string& text);
    /// Wipes the line.
    void clear();

  private:
    std::ostream& out_;
    bool terminal_;
    bool shown_ = false;
};

}  // namespace backlight::tool
