#include "tuning/gradient_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace backlight::tuning {

namespace {

double accepted_relative_l2(const AttentionProblem& problem) {
    constexpr std::int64_t long_sequence = 512;
    if (problem.dtype == DataType::fp16) {
        return 1e-3;
    }
    return problem.seqlen_q >= long_sequence ? 3e-3 : 5e-3;
}

}  // namespace

std::string gradient_fault(const AttentionProblem& problem, std::span<const float> values,
                           std::span<const float> reference, std::int64_t head_dim) {
    const auto columns = static_cast<std::size_t>(head_dim);
    const std::size_t rows = values.size() / columns;
    std::vector<double> row_errors(rows);
    std::vector<double> row_norms(rows);
    double error = 0;
    double norm = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
            const double expected = reference[i];
            const double difference = values[i] - expected;
            row_errors[row] += difference * difference;
            row_norms[row] += expected * expected;
        }
        error += row_errors[row];
        norm += row_norms[row];
    }
    const double accepted = accepted_relative_l2(problem);
    // Comparisons that a NaN fails.
    const double whole = error == 0 ? 0 : std::sqrt(error / norm);
    if (!(whole <= accepted)) {
        return fmt::format("relative L2 is {:.1e}, accepted is {:.1e}", whole, accepted);
    }
    constexpr double accepted_in_row = 4;
    const double shortest = norm / static_cast<double>(rows) * 1e-4;
    for (std::size_t row = 0; row < rows; ++row) {
        const double here = row_errors[row] == 0
                                ? 0
                                : std::sqrt(row_errors[row] / std::max(row_norms[row], shortest));
        if (!(here <= accepted_in_row * accepted)) {
            return fmt::format("relative L2 of row {} is {:.1e}, accepted is {:.1e}", row, here,
                               accepted_in_row * accepted);
        }
    }
    return {};
}

}  // namespace backlight::tuning
