#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "progress_line.hpp"

namespace backlight::tool {

/// How long the rest of a row of tasks will take, judged by the finished ones of the same kind.
class RemainingTime {
  public:
    /// The kind of each task.
    RemainingTime(const std::vector<std::string>& kinds, int workers);

    void finished(const std::string& kind, double seconds);
    /// Nothing before a task has finished.
    std::optional<double> seconds() const;

  private:
    struct Kind {
        std::size_t finished = 0;
        std::size_t left = 0;
        double seconds = 0;
    };
    std::map<std::string, Kind> kinds_;
    int workers_;
};

/// "0:07", "12:30", "1:02:03".
std::string clock_text(double seconds);

/// Says how far a row of tasks is: one line that is written over on a terminal, a line a task
/// elsewhere. For many threads.
class ProgressDisplay {
  public:
    /// `columns` of the terminal; 0 where the output is none.
    ProgressDisplay(std::ostream& out, std::size_t columns, const std::vector<std::string>& kinds,
                    int workers);

    void started(std::string_view task);
    /// `outcome` comes before the task; a problem, where there is one, is told on a line of its
    /// own.
    void finished(const std::string& kind, std::string_view outcome, std::string_view task,
                  double seconds, std::string_view problem);

  private:
    std::string count_text() const;
    std::string time_text() const;

    std::mutex mutex_;
    std::ostream& out_;
    ProgressLine line_;
    std::size_t total_;
    std::size_t done_ = 0;
    RemainingTime remaining_;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace backlight::tool
