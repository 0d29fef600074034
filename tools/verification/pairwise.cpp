#include "verification/pairwise.hpp"

#include <algorithm>
#include <numeric>

namespace backlight::verification {
namespace {

bool complete_from(const GridModel& model, GridRow& row, std::size_t axis) {
    while (axis < row.size() && row[axis] != unset) {
        ++axis;
    }
    if (axis == row.size()) {
        return model.possible(row);
    }
    for (int value = 0; value < model.sizes[axis]; ++value) {
        row[axis] = value;
        if (model.possible(row) && complete_from(model, row, axis + 1)) {
            return true;
        }
    }
    row[axis] = unset;
    return false;
}

/// Which pairs rows do not have yet.
class OpenPairs {
  public:
    explicit OpenPairs(const std::vector<int>& sizes) : first_(sizes.size()) {
        std::exclusive_scan(sizes.begin(), sizes.end(), first_.begin(), 0);
        values_ = sizes.empty() ? 0 : first_.back() + sizes.back();
        open_.assign(static_cast<std::size_t>(values_) * static_cast<std::size_t>(values_), false);
        uses_.assign(static_cast<std::size_t>(values_), 0);
        left_of_axis_.assign(sizes.size(), 0);
    }

    void open(std::size_t a, int value_a, std::size_t b, int value_b) {
        set(a, value_a, b, value_b, true);
    }
    bool is_open(std::size_t a, int value_a, std::size_t b, int value_b) const {
        return open_[place(a, value_a, b, value_b)];
    }
    int left_of(std::size_t axis) const { return left_of_axis_[axis]; }
    int uses_of(std::size_t axis, int value) const { return uses_[index(axis, value)]; }

    /// How many open pairs the value makes with those that the row has.
    int gain(const GridRow& row, std::size_t axis, int value) const {
        int pairs = 0;
        for (std::size_t other = 0; other < row.size(); ++other) {
            pairs += other != axis && row[other] != unset && is_open(axis, value, other, row[other])
                         ? 1
                         : 0;
        }
        return pairs;
    }

    void close(const GridRow& row) {
        for (std::size_t a = 0; a < row.size(); ++a) {
            ++uses_[index(a, row[a])];
            for (std::size_t b = 0; b < a; ++b) {
                set(a, row[a], b, row[b], false);
            }
        }
    }

  private:
    std::size_t index(std::size_t axis, int value) const {
        return static_cast<std::size_t>(first_[axis] + value);
    }
    std::size_t place(std::size_t a, int value_a, std::size_t b, int value_b) const {
        return index(a, value_a) * static_cast<std::size_t>(values_) + index(b, value_b);
    }
    void set(std::size_t a, int value_a, std::size_t b, int value_b, bool open) {
        if (is_open(a, value_a, b, value_b) == open) {
            return;
        }
        open_[place(a, value_a, b, value_b)] = open_[place(b, value_b, a, value_a)] = open;
        left_of_axis_[a] += open ? 1 : -1;
        left_of_axis_[b] += open ? 1 : -1;
    }

    std::vector<int> first_;
    int values_ = 0;
    std::vector<bool> open_;
    std::vector<int> uses_;
    std::vector<int> left_of_axis_;
};

/// Sets what is unset, axis by axis, to the value that closes most pairs and leaves a legal row.
void extend(const GridModel& model, const OpenPairs& pairs, GridRow& row) {
    std::vector<std::size_t> axes;
    for (std::size_t axis = 0; axis < row.size(); ++axis) {
        if (row[axis] == unset) {
            axes.push_back(axis);
        }
    }
    std::ranges::stable_sort(
        axes, [&](std::size_t a, std::size_t b) { return pairs.left_of(a) > pairs.left_of(b); });
    for (const std::size_t axis : axes) {
        std::vector<int> values(static_cast<std::size_t>(model.sizes[axis]));
        std::iota(values.begin(), values.end(), 0);
        std::vector<int> gains;
        for (const int value : values) {
            gains.push_back(pairs.gain(row, axis, value));
        }
        std::ranges::stable_sort(values, [&](int a, int b) {
            const int more =
                gains[static_cast<std::size_t>(a)] - gains[static_cast<std::size_t>(b)];
            return more != 0 ? more > 0 : pairs.uses_of(axis, a) < pairs.uses_of(axis, b);
        });
        // One of them does: the row could be completed before.
        for (const int value : values) {
            row[axis] = value;
            GridRow whole = row;
            if (complete(model, whole)) {
                break;
            }
        }
    }
}

}  // namespace

bool complete(const GridModel& model, GridRow& row) {
    return model.possible(row) && complete_from(model, row, 0);
}

std::vector<GridRow> pairwise_rows(const GridModel& model) {
    const std::size_t axes = model.sizes.size();
    OpenPairs pairs(model.sizes);
    struct Pair {
        std::size_t a;
        int value_a;
        std::size_t b;
        int value_b;
    };
    std::vector<Pair> legal;
    const auto row_with = [&](const Pair& pair) {
        GridRow row(axes, unset);
        row[pair.a] = pair.value_a;
        row[pair.b] = pair.value_b;
        return row;
    };
    for (std::size_t a = 0; a < axes; ++a) {
        for (std::size_t b = a + 1; b < axes; ++b) {
            for (int value_a = 0; value_a < model.sizes[a]; ++value_a) {
                for (int value_b = 0; value_b < model.sizes[b]; ++value_b) {
                    const Pair pair{a, value_a, b, value_b};
                    GridRow row = row_with(pair);
                    if (complete(model, row)) {
                        legal.push_back(pair);
                        pairs.open(a, value_a, b, value_b);
                    }
                }
            }
        }
    }
    // Pairs of the axes with most values first: those decide how many rows there are.
    std::ranges::stable_sort(legal, [&](const Pair& left, const Pair& right) {
        return model.sizes[left.a] * model.sizes[left.b] >
               model.sizes[right.a] * model.sizes[right.b];
    });
    std::vector<GridRow> rows;
    for (const Pair& pair : legal) {
        if (!pairs.is_open(pair.a, pair.value_a, pair.b, pair.value_b)) {
            continue;
        }
        GridRow row = row_with(pair);
        extend(model, pairs, row);
        pairs.close(row);
        rows.push_back(std::move(row));
    }
    return rows;
}

}  // namespace backlight::verification
