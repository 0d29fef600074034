#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace backlight::verification {

/// Extents of a contiguous (batch, heads, rows, columns) tensor.
struct TensorShape {
    std::int64_t batch = 1;
    std::int64_t heads = 1;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
};

struct ElementIndex {
    std::int64_t batch = 0;
    std::int64_t head = 0;
    std::int64_t row = 0;
    std::int64_t column = 0;

    bool operator==(const ElementIndex&) const = default;
};

struct RowIndex {
    std::int64_t batch = 0;
    std::int64_t head = 0;
    std::int64_t row = 0;

    bool operator==(const RowIndex&) const = default;
};

/// How far a tensor is from its reference.
struct Accuracy {
    /// ‖actual − reference‖₂ / ‖reference‖₂ of the whole tensor. 0 when both are zero, infinite
    /// when only the reference is, or when `finite` is false: any tolerance refuses those.
    double relative_l2 = 0;
    /// The largest such error of one (batch, head) row. A row shorter than a hundredth of the
    /// tensor's root-mean-square row norm is divided by that floor instead of its own norm: a
    /// gradient row that cancels to almost nothing carries the rounding of the terms that
    /// cancelled.
    double worst_row = 0;
    RowIndex worst_row_index;
    /// Neither tensor holds a NaN or an infinity.
    bool finite = true;
    /// The first element, in memory order, that is not finite in one of the tensors.
    std::optional<ElementIndex> first_non_finite;
};

struct AccuracyOptions {
    /// The least root mean square that the reference is taken to have. For gradients that vanish
    /// mathematically (dQ and dK of `InputKind::equal_rows`), where a relative error says nothing.
    double minimum_rms = 0;
};

/// Throws `invalid_argument` when a span's size is not that of the shape.
Accuracy measure_accuracy(std::span<const float> actual, std::span<const double> reference,
                          const TensorShape& shape, const AccuracyOptions& options = {});
Accuracy measure_accuracy(std::span<const float> actual, std::span<const float> reference,
                          const TensorShape& shape, const AccuracyOptions& options = {});

/// One line for a report: "relative L2 1.2e-03, worst row 4.5e-03 at (batch 0, head 1, row 17)".
std::string to_string(const Accuracy& accuracy);

}  // namespace backlight::verification
