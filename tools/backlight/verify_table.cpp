#include "verify_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace backlight::tool {

namespace {

// The figures of the four columns dQ, dK, dV and row are one text.
constexpr const char* row_format = "{:<24} {:<6} {:>7} {:<13} {:<5} {:>8} {:>39} {:>6}\n";

/// Which window it is, the command line tells.
std::string mask_column(const ProblemAxes& axes) {
    if (axes.features.window_left || axes.features.window_right) {
        return axes.causal ? "causal window" : "window";
    }
    return axes.causal ? "causal" : "full";
}

}  // namespace

void KernelSummary::add(const ProblemReport& report) {
    ++problems_;
    failed_ += report.passed() ? 0 : 1;
    faulted_ += report.faulted() ? 1 : 0;
    for (std::size_t i = 0; i < report.tensors.size(); ++i) {
        const verification::Accuracy& accuracy = report.tensors[i].accuracy;
        relative_l2_[i] = std::max(relative_l2_[i], accuracy.relative_l2);
        worst_row_ = std::max(worst_row_, accuracy.worst_row);
    }
}

std::string KernelSummary::line(const std::string& group, const std::string& kernel,
                                const ProblemAxes& axes) const {
    return line(group, kernel,
                {std::to_string(axes.head_dim), mask_column(axes), to_string(axes.dtype)});
}

std::string KernelSummary::line(const std::string& group, const std::string& kernel,
                                const std::string& head_dims) const {
    return line(group, kernel, {head_dims, "all", "all"});
}

std::string KernelSummary::line(const std::string& group, const std::string& kernel,
                                const std::array<std::string, 3>& of) const {
    const std::string told =
        faulted_ > 0 ? fmt::format("the kernel faulted in {} of {}", faulted_, problems_)
                     : fmt::format("{:>9.2e} {:>9.2e} {:>9.2e} {:>9.2e}", relative_l2_[0],
                                   relative_l2_[1], relative_l2_[2], worst_row_);
    return fmt::format(row_format, group, kernel, of[0], of[1], of[2], problems_, told,
                       failed_ == 0 ? "ok" : fmt::format("{} bad", failed_));
}

std::string table_heading() {
    return fmt::format(row_format, "group", "kernel", "d", "mask", "dtype", "problems",
                       fmt::format("{:>9} {:>9} {:>9} {:>9}", "dQ", "dK", "dV", "row"), "");
}

}  // namespace backlight::tool
