#include "prebuild_progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace backlight::tool {

RemainingTime::RemainingTime(const std::vector<std::string>& kinds, int workers)
    : workers_(std::max(workers, 1)) {
    for (const std::string& kind : kinds) {
        ++kinds_[kind].left;
    }
}

void RemainingTime::finished(const std::string& kind, double seconds) {
    Kind& of = kinds_[kind];
    ++of.finished;
    of.left -= of.left > 0 ? 1 : 0;
    of.seconds += seconds;
}

std::optional<double> RemainingTime::seconds() const {
    std::size_t finished = 0;
    std::size_t left = 0;
    double spent = 0;
    for (const auto& [name, kind] : kinds_) {
        finished += kind.finished;
        left += kind.left;
        spent += kind.seconds;
    }
    if (finished == 0) {
        return std::nullopt;
    }
    double rest = 0;
    for (const auto& [name, kind] : kinds_) {
        const double each = kind.finished > 0 ? kind.seconds / static_cast<double>(kind.finished)
                                              : spent / static_cast<double>(finished);
        rest += each * static_cast<double>(kind.left);
    }
    const std::size_t at_once = std::clamp<std::size_t>(left, 1, static_cast<unsigned>(workers_));
    return rest / static_cast<double>(at_once);
}

std::string clock_text(double seconds) {
    const auto whole = std::lround(std::max(seconds, 0.0));
    const long minutes = whole / 60 % 60;
    return whole < 3600 ? fmt::format("{}:{:02}", minutes, whole % 60)
                        : fmt::format("{}:{:02}:{:02}", whole / 3600, minutes, whole % 60);
}

ProgressDisplay::ProgressDisplay(std::ostream& out, std::size_t columns,
                                 const std::vector<std::string>& kinds, int workers)
    : out_(out), line_(out, columns), total_(kinds.size()), remaining_(kinds, workers) {}

std::string ProgressDisplay::count_text() const {
    const std::string total = std::to_string(total_);
    return fmt::format("[{:>{}}/{}]", done_, total.size(), total);
}

std::string ProgressDisplay::time_text() const {
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
    const auto rest = remaining_.seconds();
    return fmt::format("{} elapsed{}", clock_text(elapsed.count()),
                       rest ? fmt::format(", about {} left", clock_text(*rest)) : "");
}

void ProgressDisplay::started(std::string_view task) {
    const std::lock_guard lock(mutex_);
    line_.show(fmt::format("{} {}, {}", count_text(), time_text(), task));
}

void ProgressDisplay::finished(const std::string& kind, std::string_view outcome,
                               std::string_view task, double seconds, std::string_view problem) {
    const std::lock_guard lock(mutex_);
    ++done_;
    remaining_.finished(kind, seconds);
    if (line_.on_terminal() && problem.empty()) {
        line_.show(fmt::format("{} {}, {} {}", count_text(), time_text(), outcome, task));
        return;
    }
    line_.clear();
    out_ << fmt::format("{} {} {} in {:.1f} s; {}\n", count_text(), outcome, task, seconds,
                        time_text());
    if (!problem.empty()) {
        out_ << problem << '\n';
    }
    out_ << std::flush;
}

}  // namespace backlight::tool
