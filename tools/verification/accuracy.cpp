#include "verification/accuracy.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

#include "backlight/error.hpp"

namespace backlight::verification {
namespace {

constexpr double row_norm_floor = 1e-2;

RowIndex row_index(const TensorShape& shape, std::size_t row) {
    const auto index = static_cast<std::int64_t>(row);
    return {.batch = index / shape.rows / shape.heads,
            .head = index / shape.rows % shape.heads,
            .row = index % shape.rows};
}

void check_size(const char* name, std::size_t size, const TensorShape& shape) {
    const std::int64_t elements = shape.batch * shape.heads * shape.rows * shape.columns;
    if (std::min({shape.batch, shape.heads, shape.rows, shape.columns}) < 1 ||
        size != static_cast<std::size_t>(elements)) {
        std::ostringstream text;
        text << "measure_accuracy: " << name << " has " << size << " elements; shape ("
             << shape.batch << ", " << shape.heads << ", " << shape.rows << ", " << shape.columns
             << ") needs positive extents and their product";
        throw Error(ErrorCode::invalid_argument, text.str());
    }
}

double ratio(double error, double norm) {
    if (error == 0) {
        return 0;
    }
    return norm > 0 ? error / norm : std::numeric_limits<double>::infinity();
}

template <typename Reference>
Accuracy measure(std::span<const float> actual, std::span<const Reference> reference,
                 const TensorShape& shape, const AccuracyOptions& options) {
    check_size("the actual tensor", actual.size(), shape);
    check_size("the reference", reference.size(), shape);
    const auto columns = static_cast<std::size_t>(shape.columns);
    const std::size_t rows = actual.size() / columns;

    Accuracy accuracy;
    std::vector<double> row_errors(rows);
    std::vector<double> row_norms(rows);
    double total_error = 0;
    double total_norm = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        double error = 0;
        double norm = 0;
        for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
            const auto computed = static_cast<double>(actual[i]);
            const auto expected = static_cast<double>(reference[i]);
            if (!std::isfinite(computed) || !std::isfinite(expected)) {
                accuracy.relative_l2 = std::numeric_limits<double>::infinity();
                accuracy.worst_row = std::numeric_limits<double>::infinity();
                accuracy.worst_row_index = row_index(shape, row);
                accuracy.finite = false;
                accuracy.first_non_finite =
                    ElementIndex{.batch = accuracy.worst_row_index.batch,
                                 .head = accuracy.worst_row_index.head,
                                 .row = accuracy.worst_row_index.row,
                                 .column = static_cast<std::int64_t>(i % columns)};
                return accuracy;
            }
            error += (computed - expected) * (computed - expected);
            norm += expected * expected;
        }
        row_errors[row] = std::sqrt(error);
        row_norms[row] = std::sqrt(norm);
        total_error += error;
        total_norm += norm;
    }

    const double minimum_row_norm = options.minimum_rms * std::sqrt(static_cast<double>(columns));
    const double rms_row_norm = std::sqrt(total_norm / static_cast<double>(rows));
    const double floor = std::max(row_norm_floor * rms_row_norm, minimum_row_norm);
    const double minimum_norm = minimum_row_norm * std::sqrt(static_cast<double>(rows));
    accuracy.relative_l2 =
        ratio(std::sqrt(total_error), std::max(std::sqrt(total_norm), minimum_norm));
    for (std::size_t row = 0; row < rows; ++row) {
        const double error = ratio(row_errors[row], std::max(row_norms[row], floor));
        if (error > accuracy.worst_row) {
            accuracy.worst_row = error;
            accuracy.worst_row_index = row_index(shape, row);
        }
    }
    return accuracy;
}

}  // namespace

Accuracy measure_accuracy(std::span<const float> actual, std::span<const double> reference,
                          const TensorShape& shape, const AccuracyOptions& options) {
    return measure(actual, reference, shape, options);
}

Accuracy measure_accuracy(std::span<const float> actual, std::span<const float> reference,
                          const TensorShape& shape, const AccuracyOptions& options) {
    return measure(actual, reference, shape, options);
}

std::string to_string(const Accuracy& accuracy) {
    std::ostringstream text;
    if (accuracy.first_non_finite) {
        const ElementIndex& index = *accuracy.first_non_finite;
        text << "not finite, first at (batch " << index.batch << ", head " << index.head << ", row "
             << index.row << ", column " << index.column << ")";
        return text.str();
    }
    const RowIndex& row = accuracy.worst_row_index;
    text << std::scientific << std::setprecision(1) << "relative L2 " << accuracy.relative_l2
         << ", worst row " << accuracy.worst_row << " at (batch " << row.batch << ", head "
         << row.head << ", row " << row.row << ")";
    return text.str();
}

}  // namespace backlight::verification
