#include "verification_grid.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "device/target.hpp"
#include "grid_share.hpp"
#include "verification/inputs.hpp"

namespace backlight::tool {

namespace {

using verification::GridRow;
using verification::InputKind;

bool needs_logits(InputKind kind) {
    return std::ranges::count(std::array{InputKind::large_logits, InputKind::low_lse,
                                         InputKind::high_lse, InputKind::dominant_key},
                              kind) > 0;
}

/// What two values of a problem may exclude each other for, each on its own; `checked` has the two
/// and is plain otherwise.
bool may_exclude(const CheckedProblem& checked, std::span<const int> row) {
    const AttentionProblem& problem = checked.problem;
    using Grid = VerificationGrid;
    const bool packed =
        row[Grid::layout] != verification::unset && checked.layout == Layout::packed_qkv;
    return (packed && problem.head_dim_v) ||
           (packed && problem.packed && problem.packed->total_q != problem.packed->total_kv) ||
           (checked.layout == Layout::broadcast && needs_logits(checked.inputs)) ||
           (needs_logits(checked.inputs) && problem.softmax_scale == 0.0F) ||
           (checked.inputs == InputKind::dominant_key && problem.window_left);
}

}  // namespace

TEST_CASE("the grid has each pair of values unless the two exclude each other") {
    for (const GridSize size : {GridSize::small, GridSize::large}) {
        const VerificationGrid grid(size);
        const verification::GridModel model = grid.model();
        const std::vector<GridRow> rows = verification::pairwise_rows(model);
        std::set<std::tuple<std::size_t, int, std::size_t, int>> covered;
        for (const GridRow& row : rows) {
            for (std::size_t a = 0; a < row.size(); ++a) {
                for (std::size_t b = a + 1; b < row.size(); ++b) {
                    covered.insert({a, row[a], b, row[b]});
                }
            }
        }
        int excluded = 0;
        for (std::size_t a = 0; a < model.sizes.size(); ++a) {
            for (std::size_t b = a + 1; b < model.sizes.size(); ++b) {
                for (int value_a = 0; value_a < model.sizes[a]; ++value_a) {
                    for (int value_b = 0; value_b < model.sizes[b]; ++value_b) {
                        GridRow row(model.sizes.size(), verification::unset);
                        row[a] = value_a;
                        row[b] = value_b;
                        const bool lengths =
                            a == VerificationGrid::seqlen_q && b == VerificationGrid::seqlen_kv;
                        const std::string text = to_string(grid.problem(row));
                        CAPTURE(text);
                        const bool present = covered.contains({a, value_a, b, value_b});
                        CHECK(present != may_exclude(grid.problem(row), row));
                        CHECK((present || !lengths));
                        excluded += present ? 0 : 1;
                    }
                }
            }
        }
        CHECK(excluded > 0);
        CHECK(excluded < 60);
    }
}

TEST_CASE("problems of the grid are valid and have inputs and are the same every time") {
    for (const GridSize size : {GridSize::small, GridSize::large}) {
        const VerificationGrid grid(size);
        const std::vector<CheckedProblem> problems = grid.problems();
        std::set<std::string> texts;
        for (CheckedProblem checked : problems) {
            CHECK_NOTHROW(attention::validate(checked.problem));
            texts.insert(to_string(checked));
            // What inputs are refused for does not depend on the extents.
            AttentionProblem& problem = checked.problem;
            problem.batch = 1;
            problem.seqlen_q = problem.seqlen_kv = 1;
            CHECK_NOTHROW(verification::make_inputs(problem, checked.inputs, checked.seed));
        }
        CHECK(texts.size() == problems.size());
        const std::vector<CheckedProblem> again = grid.problems();
        REQUIRE(again.size() == problems.size());
        for (std::size_t i = 0; i < again.size(); ++i) {
            CHECK(to_string(again[i]) == to_string(problems[i]));
        }
        CHECK(problems.size() < (size == GridSize::small ? 100 : 400));
    }
}

TEST_CASE("small problems are compared with fp64 and large ones reach lengths beyond 4096") {
    for (const CheckedProblem& checked : VerificationGrid(GridSize::small).problems()) {
        CHECK(checked.reference == Reference::host_fp64);
        CHECK(checked.problem.seqlen_q <= 256);
    }
    const std::vector<CheckedProblem> large = VerificationGrid(GridSize::large).problems();
    CHECK(std::ranges::any_of(large, [](const CheckedProblem& checked) {
        return checked.problem.seqlen_q > 4096 && checked.problem.seqlen_kv > 4096;
    }));
}

TEST_CASE("a grid of some head dimensions and types has no others") {
    const VerificationGrid grid(GridSize::large, {128, 192}, {DataType::fp16});
    std::set<std::int64_t> head_dims;
    for (const CheckedProblem& checked : grid.problems()) {
        CHECK(checked.problem.dtype == DataType::fp16);
        head_dims.insert(checked.problem.head_dim);
    }
    CHECK(head_dims == std::set<std::int64_t>{128, 192});
    CHECK_THROWS_AS(VerificationGrid(GridSize::small, {16}), Error);
}

TEST_CASE("a kernel's share of the grid has all pairs of what it takes and tells the rest") {
    const device::Target target = device::target_by_name("sm_90a");
    for (const char* name : {"v3", "v4", "wgmma"}) {
        CAPTURE(name);
        const NamedConfig kernel = parse_kernel(name);
        const VerificationGrid grid(GridSize::small);
        const GridShare share = grid_share(grid, kernel, target);
        CHECK_FALSE(share.problems.empty());
        const auto not_taken = [&](const CheckedProblem& checked) {
            return features_not_taken(checked.problem, config_for(kernel, checked.problem, target),
                                      target);
        };
        for (const CheckedProblem& checked : share.problems) {
            CHECK(not_taken(checked).empty());
        }
        const auto whole = grid.problems();
        CHECK(share.whole == static_cast<int>(whole.size()));
        const auto refused = std::ranges::count_if(
            whole, [&](const CheckedProblem& checked) { return !not_taken(checked).empty(); });
        CHECK(share.not_taken == static_cast<int>(refused));
        // Problems with each pair of both types and of all inputs.
        std::set<std::pair<DataType, InputKind>> pairs;
        for (const CheckedProblem& checked : share.problems) {
            pairs.insert({checked.problem.dtype, checked.inputs});
        }
        CHECK(pairs.size() == 2 * verification::input_kinds.size());
        const std::string text = share_text(kernel.name, share);
        for (const auto& [feature, problems] : share.lacking) {
            CHECK(problems > 0);
            CHECK(text.find(feature) != std::string::npos);
        }
    }
}

TEST_CASE("what the seed's kernel does not take of a problem is told feature by feature") {
    const device::Target target = device::target_by_name("sm_90a");
    const TileConfig v3 = kernel_preset("v3");
    const AttentionProblem problem{.heads = 4,
                                   .heads_kv = 2,
                                   .seqlen_q = 100,
                                   .seqlen_kv = 128,
                                   .head_dim = 40,
                                   .window_left = 10,
                                   .gradient_type = GradientType::fp32,
                                   .accumulate_gradients = true,
                                   .deterministic = true};
    CHECK(features_not_taken(problem, v3, target) ==
          std::vector<std::string>{"head dimension 40", "grouped heads", "window", "fp32 gradients",
                                   "accumulated gradients", "deterministic",
                                   "lengths that its tiles do not divide"});
    // A window wider than the sequence masks nothing.
    CHECK(features_not_taken({.seqlen_q = 128,
                              .seqlen_kv = 128,
                              .head_dim = 64,
                              .window_left = 1000,
                              .window_right = 1000},
                             v3, target)
              .empty());
    CHECK(features_not_taken({.seqlen_q = 64, .seqlen_kv = 128, .head_dim = 64, .causal = true}, v3,
                             target) ==
          std::vector<std::string>{"causal mask over unequal lengths"});
}

TEST_CASE("rows of no score are those that the mask's inequalities leave nothing of") {
    for (const AttentionProblem& problem :
         {AttentionProblem{.seqlen_q = 7, .seqlen_kv = 3, .head_dim = 8, .causal = true},
          AttentionProblem{.seqlen_q = 3,
          .seqlen_kv = 9,
          .head_dim = 8,
          .mask_alignment = MaskAlignment::top_left,
          .window_left = 1,
          .window_right = 2},
          AttentionProblem{
              .seqlen_q = 9, .seqlen_kv = 4, .head_dim = 8, .window_left = 0, .window_right = 0},
          AttentionProblem{.seqlen_q = 4, .seqlen_kv = 4, .head_dim = 8}}) {
        const std::int64_t shift = problem.mask_alignment == MaskAlignment::bottom_right
                                       ? problem.seqlen_kv - problem.seqlen_q
                                       : 0;
        const auto attends = [&](std::int64_t i, std::int64_t j) {
            const std::int64_t position = i + shift;
            return (!problem.causal || j <= position) &&
                   (!problem.window_left || j >= position - *problem.window_left) &&
                   (!problem.window_right || j <= position + *problem.window_right);
        };
        const std::vector<bool> queries = rows_without_gradient(problem, 0);
        const std::vector<bool> keys = rows_without_gradient(problem, 1);
        CHECK(rows_without_gradient(problem, 2) == keys);
        for (std::int64_t i = 0; i < problem.seqlen_q; ++i) {
            bool any = false;
            for (std::int64_t j = 0; j < problem.seqlen_kv; ++j) {
                any = any || attends(i, j);
            }
            CHECK(queries[static_cast<std::size_t>(i)] == !any);
        }
        for (std::int64_t j = 0; j < problem.seqlen_kv; ++j) {
            bool any = false;
            for (std::int64_t i = 0; i < problem.seqlen_q; ++i) {
                any = any || attends(i, j);
            }
            CHECK(keys[static_cast<std::size_t>(j)] == !any);
        }
    }
}

TEST_CASE("what is left of a gradient that vanishes is judged by how large queries are") {
    CheckedProblem checked;
    checked.problem = {.batch = 16, .heads = 64, .seqlen_q = 64, .seqlen_kv = 1, .head_dim = 64};
    const auto accepted = [&](InputKind inputs) {
        checked.inputs = inputs;
        const Tolerance tolerance = tolerances(checked)[1];
        return tolerance.minimum_rms * tolerance.relative_l2;
    };
    const double of_equal_rows = accepted(InputKind::equal_rows);
    CHECK(of_equal_rows == doctest::Approx(1e-5).epsilon(0.003));
    CHECK(accepted(InputKind::large_logits) == doctest::Approx(25e-5).epsilon(0.003));
    // 225 = softmax_scale · head_dim · |Q|², and softmax_scale · √head_dim is 1.
    CHECK(accepted(InputKind::high_lse) ==
          doctest::Approx(std::sqrt(225 / 8.0) * 1e-5).epsilon(0.003));
    CHECK(accepted(InputKind::low_lse) == accepted(InputKind::high_lse));
    checked.problem.softmax_scale = 0;
    CHECK(accepted(InputKind::equal_rows) == of_equal_rows);
}

TEST_CASE("a tensor of few rows may be further off unless inputs are normal") {
    CheckedProblem checked;
    checked.inputs = InputKind::low_lse;
    checked.problem = {.heads = 2, .seqlen_q = 2, .seqlen_kv = 50'000, .head_dim = 64};
    const auto few = tolerances(checked);
    CHECK(few[0].relative_l2 == doctest::Approx(std::sqrt(2.0) * few[1].relative_l2).epsilon(1e-4));
    CHECK(few[0].worst_row == few[1].worst_row);
    checked.inputs = InputKind::normal;
    CHECK(tolerances(checked)[0].relative_l2 == tolerances(checked)[1].relative_l2);
}

TEST_CASE("rows of few columns of dQ may be further off and those of dK and dV not") {
    CheckedProblem wide;
    wide.problem = {.seqlen_q = 64, .seqlen_kv = 64, .head_dim = 64};
    for (const InputKind inputs : {InputKind::normal, InputKind::low_lse}) {
        wide.inputs = inputs;
        CheckedProblem narrow = wide;
        narrow.problem.head_dim = 16;
        const auto of_wide = tolerances(wide);
        const auto of_narrow = tolerances(narrow);
        CHECK(of_narrow[0].worst_row == doctest::Approx(2 * of_wide[0].worst_row));
        CHECK(of_narrow[0].relative_l2 ==
              doctest::Approx((inputs == InputKind::normal ? 1 : 2) * of_wide[0].relative_l2));
        for (const std::size_t gradient : {1, 2}) {
            CHECK(of_narrow[gradient].relative_l2 == of_wide[gradient].relative_l2);
            CHECK(of_narrow[gradient].worst_row == of_wide[gradient].worst_row);
        }
        narrow.problem.head_dim = 128;
        CHECK(tolerances(narrow)[0].worst_row == of_wide[0].worst_row);
    }
}

}  // namespace backlight::tool
