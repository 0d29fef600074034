#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace backlight::verification {

/// A value for each axis, as an index; `unset` where it is still open.
using GridRow = std::vector<int>;

inline constexpr int unset = -1;

/// Axes with so many values each, and which of them exclude each other.
struct GridModel {
    std::vector<int> sizes;
    /// False for a row, in part unset, that no choice of the rest makes legal. It may say true of a
    /// row in part unset for which there is none; of a whole row it decides.
    std::function<bool(std::span<const int>)> possible;
};

/// Some legal row with the values of `row` exists. What is unset is then set in `row` to the first
/// such values.
bool complete(const GridModel& model, GridRow& row);

/// A covering array of strength two (Cohen, Dalal, Fredman, Patton 1997): legal rows among which
/// each two values of different axes that some legal row has together occur together at least once.
/// A greedy choice, a few rows beyond the fewest; the same rows every time.
std::vector<GridRow> pairwise_rows(const GridModel& model);

}  // namespace backlight::verification
