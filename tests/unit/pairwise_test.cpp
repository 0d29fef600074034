#include "verification/pairwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

using backlight::verification::complete;
using backlight::verification::GridModel;
using backlight::verification::GridRow;
using backlight::verification::pairwise_rows;
using backlight::verification::unset;

namespace {

using Pair = std::tuple<std::size_t, int, std::size_t, int>;

void add_pairs(const GridRow& row, std::set<Pair>& pairs) {
    for (std::size_t a = 0; a < row.size(); ++a) {
        for (std::size_t b = a + 1; b < row.size(); ++b) {
            pairs.insert({a, row[a], b, row[b]});
        }
    }
}

/// Of all legal rows, counted through one by one.
std::set<Pair> legal_pairs(const GridModel& model) {
    std::set<Pair> pairs;
    GridRow row(model.sizes.size(), 0);
    for (;;) {
        if (model.possible(row)) {
            add_pairs(row, pairs);
        }
        std::size_t axis = 0;
        while (axis < row.size() && ++row[axis] == model.sizes[axis]) {
            row[axis++] = 0;
        }
        if (axis == row.size()) {
            return pairs;
        }
    }
}

std::set<Pair> covered_pairs(const std::vector<GridRow>& rows) {
    std::set<Pair> pairs;
    for (const GridRow& row : rows) {
        add_pairs(row, pairs);
    }
    return pairs;
}

}  // namespace

TEST_CASE("without rules all pairs are in little more rows than the two largest axes need") {
    const GridModel model{.sizes = {5, 4, 3, 3, 2, 2, 2},
                          .possible = [](std::span<const int>) { return true; }};
    const std::vector<GridRow> rows = pairwise_rows(model);
    CHECK(covered_pairs(rows) == legal_pairs(model));
    CHECK(rows.size() >= 20);
    CHECK(rows.size() <= 26);
    CHECK(pairwise_rows(model) == rows);
}

TEST_CASE("with rules all rows are legal and every pair that a legal row has is in one") {
    // A rule of three axes, one that leaves a value no row at all, and one that a row can be
    // completed to only by going back.
    const GridModel model{
        .sizes = {4, 4, 3, 3, 2}, .possible = [](std::span<const int> row) {
            const bool packed = row[2] == 2;
            const bool whole = std::ranges::count(row, unset) == 0;
            return !(packed && row[0] != unset && row[1] != unset && row[0] != row[1]) &&
                   row[3] != 1 && !(whole && row[4] == 0 && row[0] + row[1] > 4);
        }};
    const std::vector<GridRow> rows = pairwise_rows(model);
    for (const GridRow& row : rows) {
        CHECK(model.possible(row));
    }
    CHECK(covered_pairs(rows) == legal_pairs(model));
}

TEST_CASE("a row is completed where a legal one has its values and only there") {
    const GridModel model{.sizes = {2, 3, 3}, .possible = [](std::span<const int> row) {
                              return row[1] == unset || row[2] == unset || row[1] + row[2] == 4;
                          }};
    GridRow row = {1, unset, unset};
    CHECK(complete(model, row));
    CHECK(row == GridRow{1, 2, 2});
    GridRow none = {unset, 1, unset};
    CHECK_FALSE(complete(model, none));
    CHECK(none == GridRow{unset, 1, unset});
}

TEST_CASE("where nothing is legal there are no rows") {
    const GridModel model{.sizes = {2, 2}, .possible = [](std::span<const int>) { return false; }};
    CHECK(pairwise_rows(model).empty());
}
