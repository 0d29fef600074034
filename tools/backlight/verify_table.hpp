#pragma once

#include <array>
#include <string>

#include "problem_check.hpp"
#include "verify_problems.hpp"

namespace backlight::tool {

/// A line of the table of `verify`: the worst of a kernel's problems in a group.
class KernelSummary {
  public:
    void add(const ProblemReport& report);

    int problems() const noexcept { return problems_; }
    int failed() const noexcept { return failed_; }

    /// The line, with its end. A kernel that faulted in a problem has no gradients there: the line
    /// says so in place of figures.
    std::string line(const std::string& group, const std::string& kernel,
                     const ProblemAxes& axes) const;
    /// The same of problems of several masks and types; `head_dims` tells which of the former.
    std::string line(const std::string& group, const std::string& kernel,
                     const std::string& head_dims) const;

  private:
    std::string line(const std::string& group, const std::string& kernel,
                     const std::array<std::string, 3>& of) const;

    std::array<double, gradient_names.size()> relative_l2_{};
    double worst_row_ = 0;
    int problems_ = 0;
    int failed_ = 0;
    int faulted_ = 0;
};

/// What stands over such lines.
std::string table_heading();

}  // namespace backlight::tool
