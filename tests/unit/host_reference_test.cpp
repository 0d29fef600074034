#include "verification/host_reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "backlight/error.hpp"
#include "half_types.hpp"
#include "verification/inputs.hpp"

using backlight::AttentionProblem;
using backlight::DataType;
using backlight::Error;
using backlight::ErrorCode;
using backlight::MaskAlignment;
using backlight::widen;
using backlight::verification::InputKind;
using backlight::verification::InputTensors;
using backlight::verification::make_inputs;
using backlight::verification::reference_backward;
using backlight::verification::reference_forward;

namespace {

std::vector<double> to_doubles(DataType type, const std::vector<std::uint16_t>& bits) {
    return widen<double>(type, std::span<const std::uint16_t>(bits));
}

/// A problem with its inputs, and everything that the reference makes of them.
struct Attention {
    AttentionProblem problem;
    std::vector<double> q, k, v, d_o, o, lse, d_q, d_k, d_v;

    explicit Attention(const AttentionProblem& problem_, InputKind kind = InputKind::normal,
                       std::uint64_t seed = 1)
        : problem(problem_) {
        const InputTensors inputs = make_inputs(problem, kind, seed);
        q = to_doubles(problem.dtype, inputs.q);
        k = to_doubles(problem.dtype, inputs.k);
        v = to_doubles(problem.dtype, inputs.v);
        d_o = to_doubles(problem.dtype, inputs.d_o);
        // NaN shows what is read before it is written, or not written at all.
        const double poison = std::numeric_limits<double>::quiet_NaN();
        o.assign(d_o.size(), poison);
        lse.assign(static_cast<std::size_t>(problem.batch * problem.heads * problem.seqlen_q),
                   poison);
        d_q.assign(q.size(), poison);
        d_k.assign(k.size(), poison);
        d_v.assign(v.size(), poison);
    }

    void forward() {
        reference_forward({.problem = problem, .q = q, .k = k, .v = v, .o = o, .lse = lse});
    }

    void backward() {
        reference_backward({.problem = problem,
                            .q = q,
                            .k = k,
                            .v = v,
                            .o = o,
                            .lse = lse,
                            .d_o = d_o,
                            .d_q = d_q,
                            .d_k = d_k,
                            .d_v = d_v});
    }

    double loss() {
        forward();
        double sum = 0;
        for (std::size_t i = 0; i < o.size(); ++i) {
            sum += o[i] * d_o[i];
        }
        return sum;
    }

    /// Logit of (batch, head) pair `head`, written with indices only, as the formula has it.
    double logit(std::size_t head, std::size_t query, std::size_t key) const {
        const auto d = static_cast<std::size_t>(problem.head_dim);
        const auto queries = static_cast<std::size_t>(problem.seqlen_q);
        const auto keys = static_cast<std::size_t>(problem.seqlen_kv);
        double sum = 0;
        for (std::size_t c = 0; c < d; ++c) {
            sum += q[(head * queries + query) * d + c] * k[(head / group() * keys + key) * d + c];
        }
        return sum * static_cast<double>(problem.effective_softmax_scale());
    }

    std::size_t heads() const { return static_cast<std::size_t>(problem.batch * problem.heads); }
    std::size_t group() const {
        return static_cast<std::size_t>(problem.heads / problem.effective_heads_kv());
    }
    std::size_t visible_keys(std::size_t query) const {
        return problem.causal ? query + 1 : static_cast<std::size_t>(problem.seqlen_kv);
    }
};

/// The largest difference between a gradient and the central difference of the loss in `input`,
/// element by element.
double finite_difference_error(Attention& attention, std::vector<double>& input,
                               const std::vector<double>& gradient) {
    constexpr double step = 1e-5;
    double worst = 0;
    for (std::size_t i = 0; i < input.size(); ++i) {
        const double value = input[i];
        input[i] = value + step;
        const double above = attention.loss();
        input[i] = value - step;
        const double below = attention.loss();
        input[i] = value;
        worst = std::max(worst, std::abs((above - below) / (2 * step) - gradient[i]));
    }
    return worst;
}

void check_finite_differences(const AttentionProblem& problem) {
    Attention attention(problem);
    attention.forward();
    attention.backward();
    double largest = 0;
    for (const double gradient : attention.d_v) {
        largest = std::max(largest, std::abs(gradient));
    }
    CHECK(largest > 0.1);
    CHECK(finite_difference_error(attention, attention.q, attention.d_q) < 1e-7);
    CHECK(finite_difference_error(attention, attention.k, attention.d_k) < 1e-7);
    CHECK(finite_difference_error(attention, attention.v, attention.d_v) < 1e-7);
}

/// Causal masks and windows in both alignments, one-sided ones and those that leave one key a query
/// among them.
std::vector<AttentionProblem> masks() {
    std::vector<AttentionProblem> all;
    for (const MaskAlignment alignment : {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
        all.push_back({.causal = true, .mask_alignment = alignment});
        all.push_back({.causal = true, .mask_alignment = alignment, .window_left = 2});
        all.push_back({.mask_alignment = alignment, .window_left = 1});
        all.push_back({.mask_alignment = alignment, .window_right = 1});
        all.push_back({.mask_alignment = alignment, .window_left = 2, .window_right = 1});
        all.push_back({.mask_alignment = alignment, .window_left = 0, .window_right = 0});
        all.push_back({.causal = true,
                       .mask_alignment = alignment,
                       .window_left = std::numeric_limits<std::int64_t>::max(),
                       .window_right = 3});
    }
    return all;
}

/// The mask, as AttentionProblem states it.
bool attends(const AttentionProblem& problem, std::int64_t query, std::int64_t key) {
    std::int64_t position = query;
    if (problem.mask_alignment == MaskAlignment::bottom_right) {
        position += problem.seqlen_kv - problem.seqlen_q;
    }
    return (!problem.causal || key <= position) &&
           (!problem.window_left || position - key <= *problem.window_left) &&
           (!problem.window_right || key - position <= *problem.window_right);
}

/// The largest difference of O and LSE from sums over keys, one by one.
double forward_error(const Attention& attention) {
    const AttentionProblem& problem = attention.problem;
    const auto d_v = static_cast<std::size_t>(problem.effective_head_dim_v());
    const auto keys = static_cast<std::size_t>(problem.seqlen_kv);
    double worst = 0;
    std::size_t row = 0;
    for (std::size_t head = 0; head < attention.heads(); ++head) {
        for (std::int64_t i = 0; i < problem.seqlen_q; ++i, ++row) {
            double sum = 0;
            std::vector<double> o(d_v);
            for (std::int64_t j = 0; j < problem.seqlen_kv; ++j) {
                if (!attends(problem, i, j)) {
                    continue;
                }
                const auto key = static_cast<std::size_t>(j);
                const double weight =
                    std::exp(attention.logit(head, static_cast<std::size_t>(i), key));
                sum += weight;
                for (std::size_t c = 0; c < d_v; ++c) {
                    const std::size_t value = (head / attention.group() * keys + key) * d_v + c;
                    o[c] += weight * attention.v[value];
                }
            }
            const double lse = std::log(sum);
            worst = std::max(worst, lse == attention.lse[row] ? 0  // both may be infinite
                                                              : std::abs(lse - attention.lse[row]));
            for (std::size_t c = 0; c < d_v; ++c) {
                const double expected = sum > 0 ? o[c] / sum : 0;
                worst = std::max(worst, std::abs(expected - attention.o[row * d_v + c]));
            }
        }
    }
    return worst;
}

template <typename Call>
ErrorCode code_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.code();
    }
    FAIL("nothing was thrown");
    return ErrorCode::file_error;
}

/// The largest softmax weight of each row.
std::vector<double> largest_weights(const Attention& attention) {
    std::vector<double> weights;
    const auto queries = static_cast<std::size_t>(attention.problem.seqlen_q);
    for (std::size_t head = 0; head < attention.heads(); ++head) {
        for (std::size_t i = 0; i < queries; ++i) {
            double largest = 0;
            for (std::size_t j = 0; j < attention.visible_keys(i); ++j) {
                largest = std::max(largest, std::exp(attention.logit(head, i, j) -
                                                     attention.lse[head * queries + i]));
            }
            weights.push_back(largest);
        }
    }
    return weights;
}

}  // namespace

TEST_CASE(
    "the backward is the derivative of the forward, without a mask and with unequal lengths") {
    check_finite_differences(
        {.batch = 2, .heads = 2, .seqlen_q = 5, .seqlen_kv = 7, .head_dim = 6});
}

TEST_CASE("the backward is the derivative of the forward with the causal mask") {
    check_finite_differences(
        {.batch = 1, .heads = 2, .seqlen_q = 7, .seqlen_kv = 7, .head_dim = 6, .causal = true});
}

TEST_CASE("the backward is the derivative of the forward with a negative softmax scale") {
    check_finite_differences({.batch = 1,
                              .heads = 1,
                              .seqlen_q = 6,
                              .seqlen_kv = 6,
                              .head_dim = 5,
                              .causal = true,
                              .softmax_scale = -0.7F});
}

TEST_CASE("the backward is the derivative of the forward with grouped heads") {
    for (const std::int64_t heads_kv : {1, 2, 4}) {
        CAPTURE(heads_kv);
        check_finite_differences({.batch = 2,
                                  .heads = 4,
                                  .heads_kv = heads_kv,
                                  .seqlen_q = 3,
                                  .seqlen_kv = 4,
                                  .head_dim = 5});
    }
}

TEST_CASE("the backward is the derivative of the forward with values of another head dimension") {
    for (const auto& [head_dim, head_dim_v] : {std::pair{6, 3}, std::pair{3, 7}}) {
        CAPTURE(head_dim);
        check_finite_differences({.batch = 2,
                                  .heads = 2,
                                  .seqlen_q = 4,
                                  .seqlen_kv = 5,
                                  .head_dim = head_dim,
                                  .head_dim_v = head_dim_v});
    }
}

TEST_CASE("the backward is the derivative of the forward with any mask and unequal lengths") {
    for (const AttentionProblem& mask : masks()) {
        for (const auto& [seqlen_q, seqlen_kv] :
             {std::pair{6, 6}, std::pair{3, 7}, std::pair{7, 3}}) {
            AttentionProblem problem = mask;
            problem.heads = 2;
            problem.heads_kv = 1;
            problem.seqlen_q = seqlen_q;
            problem.seqlen_kv = seqlen_kv;
            problem.head_dim = 4;
            problem.head_dim_v = 3;
            CAPTURE(to_string(problem));
            check_finite_differences(problem);
        }
    }
}

TEST_CASE("with any mask O and LSE are those of the keys that the mask's inequalities leave") {
    for (const AttentionProblem& mask : masks()) {
        for (const auto& [seqlen_q, seqlen_kv] :
             {std::pair{9, 9}, std::pair{4, 11}, std::pair{11, 4}, std::pair{1, 6},
              std::pair{6, 1}}) {
            AttentionProblem problem = mask;
            problem.batch = 2;
            problem.heads = 4;
            problem.heads_kv = 2;
            problem.seqlen_q = seqlen_q;
            problem.seqlen_kv = seqlen_kv;
            problem.head_dim = 5;
            problem.head_dim_v = 3;
            CAPTURE(to_string(problem));
            Attention attention(problem);
            attention.forward();
            CHECK(forward_error(attention) < 1e-13);
        }
    }
}

TEST_CASE("a query that attends to nothing has no output and no gradient and gives none") {
    // The first three of five queries stand before the first of two keys.
    Attention attention(
        {.heads = 2, .heads_kv = 1, .seqlen_q = 5, .seqlen_kv = 2, .head_dim = 3, .causal = true});
    attention.forward();
    attention.backward();
    for (std::size_t i = 0; i < 5; ++i) {
        CAPTURE(i);
        const bool attends = i >= 3;
        CHECK(std::isfinite(attention.lse[i]) == attends);
        CHECK((attention.o[i * 3] != 0) == attends);
        CHECK((attention.lse[i] == -std::numeric_limits<double>::infinity()) == !attends);
    }
    CHECK(std::all_of(attention.d_q.begin(), attention.d_q.begin() + 9,
                      [](double x) { return x == 0; }));
    for (const auto* gradient : {&attention.d_q, &attention.d_k, &attention.d_v}) {
        CHECK(std::ranges::all_of(*gradient, [](double x) { return std::isfinite(x); }));
    }
}

TEST_CASE("a row whose given LSE is infinite adds nothing to any gradient") {
    const double infinity = std::numeric_limits<double>::infinity();
    for (const double lse : {-infinity, infinity}) {
        CAPTURE(lse);
        Attention attention({.seqlen_q = 2, .seqlen_kv = 3, .head_dim = 4});
        attention.forward();
        attention.lse[0] = lse;
        attention.backward();
        Attention second({.seqlen_q = 2, .seqlen_kv = 3, .head_dim = 4});
        std::fill_n(second.d_o.begin(), 4, 0.0);
        second.forward();
        second.backward();
        CHECK(std::all_of(attention.d_q.begin(), attention.d_q.begin() + 4,
                          [](double x) { return x == 0; }));
        CHECK(attention.d_k == second.d_k);
        CHECK(attention.d_v == second.d_v);
    }
}

TEST_CASE("without queries or without keys the gradients that there are are zero") {
    Attention no_keys({.seqlen_q = 3, .seqlen_kv = 0, .head_dim = 4});
    no_keys.forward();
    no_keys.backward();
    CHECK(no_keys.o == std::vector<double>(12, 0.0));
    CHECK(no_keys.lse == std::vector<double>(3, -std::numeric_limits<double>::infinity()));
    CHECK(no_keys.d_q == std::vector<double>(12, 0.0));
    Attention no_queries({.seqlen_q = 0, .seqlen_kv = 3, .head_dim = 4, .causal = true});
    no_queries.forward();
    no_queries.backward();
    CHECK(no_queries.d_k == std::vector<double>(12, 0.0));
    CHECK(no_queries.d_v == std::vector<double>(12, 0.0));
}

TEST_CASE("grouped heads give the gradients of repeated keys and values summed over the group") {
    const AttentionProblem grouped{.batch = 2,
                                   .heads = 6,
                                   .heads_kv = 2,
                                   .seqlen_q = 5,
                                   .seqlen_kv = 7,
                                   .head_dim = 4,
                                   .causal = true};
    Attention group(grouped);
    AttentionProblem repeated = grouped;
    repeated.heads_kv = std::nullopt;
    Attention whole(repeated);
    whole.q = group.q;
    whole.d_o = group.d_o;
    constexpr std::size_t head = std::size_t{7} * 4;
    for (std::size_t i = 0; i < whole.k.size(); ++i) {
        const std::size_t source = i / head / 3 * head + i % head;
        whole.k[i] = group.k[source];
        whole.v[i] = group.v[source];
    }
    for (Attention* attention : {&group, &whole}) {
        attention->forward();
        attention->backward();
    }
    CHECK(group.o == whole.o);
    CHECK(group.d_q == whole.d_q);
    for (std::size_t i = 0; i < group.d_k.size(); ++i) {
        double d_k = 0;
        double d_v = 0;
        for (std::size_t member = 0; member < 3; ++member) {
            const std::size_t source = (i / head * 3 + member) * head + i % head;
            d_k += whole.d_k[source];
            d_v += whole.d_v[source];
        }
        CHECK(group.d_k[i] == doctest::Approx(d_k).epsilon(1e-12));
        CHECK(group.d_v[i] == doctest::Approx(d_v).epsilon(1e-12));
    }
}

TEST_CASE("the rows of exp(S - LSE) sum to 1 and O is their weighted sum of V") {
    for (const bool causal : {false, true}) {
        CAPTURE(causal);
        Attention attention({.batch = 2,
                             .heads = 2,
                             .seqlen_q = 9,
                             .seqlen_kv = 9,
                             .head_dim = 10,
                             .causal = causal});
        attention.forward();
        double worst_sum = 0;
        double worst_output = 0;
        for (std::size_t head = 0; head < attention.heads(); ++head) {
            for (std::size_t i = 0; i < 9; ++i) {
                double sum = 0;
                std::vector<double> o(10);
                for (std::size_t j = 0; j < attention.visible_keys(i); ++j) {
                    const double weight =
                        std::exp(attention.logit(head, i, j) - attention.lse[head * 9 + i]);
                    sum += weight;
                    for (std::size_t c = 0; c < 10; ++c) {
                        o[c] += weight * attention.v[(head * 9 + j) * 10 + c];
                    }
                }
                worst_sum = std::max(worst_sum, std::abs(sum - 1));
                for (std::size_t c = 0; c < 10; ++c) {
                    worst_output = std::max(worst_output,
                                            std::abs(o[c] - attention.o[(head * 9 + i) * 10 + c]));
                }
            }
        }
        CHECK(worst_sum < 1e-14);
        CHECK(worst_output < 1e-13);
    }
}

TEST_CASE("with one query and one key dV is dO, and dQ and dK are zero") {
    Attention attention({.batch = 2, .heads = 3, .seqlen_q = 1, .seqlen_kv = 1, .head_dim = 8});
    attention.forward();
    attention.backward();
    CHECK(attention.o == attention.v);
    CHECK(attention.d_v == attention.d_o);
    CHECK(std::ranges::all_of(attention.d_q, [](double x) { return x == 0; }));
    CHECK(std::ranges::all_of(attention.d_k, [](double x) { return x == 0; }));
}

TEST_CASE("a softmax scale of zero averages the visible values and gives no dQ and dK") {
    Attention attention(
        {.seqlen_q = 4, .seqlen_kv = 4, .head_dim = 3, .causal = true, .softmax_scale = 0.0F});
    attention.forward();
    attention.backward();
    CHECK(attention.lse[0] == 0);
    CHECK(attention.lse[3] == doctest::Approx(std::log(4.0)));
    const double mean = (attention.v[0] + attention.v[3] + attention.v[6] + attention.v[9]) / 4;
    CHECK(attention.o[9] == doctest::Approx(mean));
    // The last key is seen by the last query alone, with a quarter of its weight.
    CHECK(attention.d_v[9] == doctest::Approx(attention.d_o[9] / 4));
    CHECK(std::ranges::all_of(attention.d_q, [](double x) { return x == 0; }));
    CHECK(std::ranges::all_of(attention.d_k, [](double x) { return x == 0; }));
}

TEST_CASE("the backward uses the given O and LSE and does not recompute them") {
    Attention attention({.seqlen_q = 3, .seqlen_kv = 3, .head_dim = 4});
    attention.forward();
    attention.backward();
    const std::vector<double> d_v = attention.d_v;
    const std::vector<double> d_q = attention.d_q;
    for (double& lse : attention.lse) {
        lse -= std::log(2.0);
    }
    attention.backward();
    for (std::size_t i = 0; i < d_v.size(); ++i) {
        CHECK(attention.d_v[i] == doctest::Approx(2 * d_v[i]));
    }
    std::ranges::fill(attention.o, 0.0);
    attention.backward();
    CHECK(std::abs(attention.d_q[0] - 2 * d_q[0]) > 1e-3);
}

TEST_CASE("the host reference refuses spans of another size and extents that make no problem") {
    const AttentionProblem good{.seqlen_q = 3, .seqlen_kv = 4, .head_dim = 2};
    Attention attention(good);
    attention.k.pop_back();
    CHECK(code_of([&] { attention.forward(); }) == ErrorCode::invalid_argument);
    CHECK(code_of([&] { attention.backward(); }) == ErrorCode::invalid_argument);

    Attention uneven(good);
    uneven.problem.heads_kv = 2;
    CHECK(code_of([&] { uneven.forward(); }) == ErrorCode::invalid_argument);

    Attention backwards(good);
    backwards.problem.window_left = -1;
    CHECK(code_of([&] { backwards.forward(); }) == ErrorCode::invalid_argument);

    Attention empty(good);
    empty.problem.head_dim = 0;
    CHECK(code_of([&] { empty.forward(); }) == ErrorCode::invalid_argument);
}

TEST_CASE("inputs depend on the seed alone and are these very bits") {
    const AttentionProblem problem{.heads = 2, .seqlen_q = 64, .seqlen_kv = 64, .head_dim = 64};
    const InputTensors a = make_inputs(problem, InputKind::normal, 7);
    const InputTensors b = make_inputs(problem, InputKind::normal, 7);
    const InputTensors c = make_inputs(problem, InputKind::normal, 8);
    CHECK(a.q == b.q);
    CHECK(a.d_o == b.d_o);
    CHECK(a.q != c.q);
    CHECK(a.q != a.k);
    CHECK(a.v != a.d_o);
    const std::vector<std::uint16_t> first(a.q.begin(), a.q.begin() + 4);
    CHECK(first == std::vector<std::uint16_t>{0xbf56, 0x3d85, 0x3d02, 0x3f31});
}

TEST_CASE("normal inputs have mean 0, variance 1 and the kurtosis of a normal distribution") {
    const Attention attention({.heads = 4, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 64});
    for (const auto* tensor : {&attention.q, &attention.k, &attention.v, &attention.d_o}) {
        double sum = 0;
        double squares = 0;
        double fourths = 0;
        for (const double x : *tensor) {
            sum += x;
            squares += x * x;
            fourths += x * x * x * x;
        }
        const auto n = static_cast<double>(tensor->size());
        CHECK(std::abs(sum / n) < 0.02);
        CHECK(squares / n == doctest::Approx(1).epsilon(0.02));
        CHECK(fourths / n == doctest::Approx(3).epsilon(0.05));
    }
}

TEST_CASE("large_logits inputs reach logits of about ±100 for any softmax scale") {
    for (const float scale : {0.125F, -0.5F}) {
        CAPTURE(scale);
        const Attention attention(
            {.seqlen_q = 128, .seqlen_kv = 128, .head_dim = 64, .softmax_scale = scale},
            InputKind::large_logits);
        double least = 0;
        double largest = 0;
        for (std::size_t i = 0; i < 128; ++i) {
            for (std::size_t j = 0; j < 128; ++j) {
                least = std::min(least, attention.logit(0, i, j));
                largest = std::max(largest, attention.logit(0, i, j));
            }
        }
        CHECK(least < -70);
        CHECK(least > -180);
        CHECK(largest > 70);
        CHECK(largest < 180);
    }
}

TEST_CASE("low_lse inputs give every row an LSE below -88 and every logit one above -330") {
    for (const bool causal : {false, true}) {
        for (const std::int64_t head_dim : {8, 64, 128}) {
            for (const float sign : {1.0F, -1.0F}) {
                AttentionProblem problem{.heads = 2,
                                         .seqlen_q = 128,
                                         .seqlen_kv = 128,
                                         .head_dim = head_dim,
                                         .causal = causal,
                                         .dtype = sign > 0 ? DataType::bf16 : DataType::fp16};
                problem.softmax_scale = sign * problem.effective_softmax_scale();
                CAPTURE(to_string(problem));
                Attention attention(problem, InputKind::low_lse);
                attention.forward();
                CHECK(*std::ranges::max_element(attention.lse) < -120);
                double least = 0;
                for (std::size_t head = 0; head < 2; ++head) {
                    for (std::size_t i = 0; i < 128; ++i) {
                        for (std::size_t j = 0; j < 128; ++j) {
                            least = std::min(least, attention.logit(head, i, j));
                        }
                    }
                }
                CHECK(least > -330);
            }
        }
    }
}

TEST_CASE("high_lse inputs give every row an LSE above 120 and every logit one below 330") {
    for (const float scale : {0.125F, -0.125F}) {
        Attention attention({.heads = 2,
                             .seqlen_q = 128,
                             .seqlen_kv = 100,
                             .head_dim = 64,
                             .dtype = DataType::fp16,
                             .softmax_scale = scale},
                            InputKind::high_lse);
        attention.forward();
        CHECK(*std::ranges::min_element(attention.lse) > 120);
        CHECK(*std::ranges::max_element(attention.lse) < 330);
    }
}

TEST_CASE("denormals inputs have whole rows and half of the rest below the smallest normal") {
    for (const DataType type : {DataType::bf16, DataType::fp16}) {
        const double smallest = type == DataType::bf16 ? 0x1p-126 : 0x1p-14;
        const Attention attention(
            {.heads = 2, .seqlen_q = 64, .seqlen_kv = 64, .head_dim = 64, .dtype = type},
            InputKind::denormals);
        for (const auto* tensor : {&attention.q, &attention.k, &attention.v, &attention.d_o}) {
            std::size_t denormal = 0;
            for (std::size_t i = 0; i < tensor->size(); ++i) {
                const bool below = std::abs((*tensor)[i]) < smallest;
                CHECK((*tensor)[i] != 0);
                CHECK((below || i / 64 % 4 != 3));
                denormal += below ? 1 : 0;
            }
            // A quarter and half of three quarters.
            CHECK(static_cast<double>(denormal) / static_cast<double>(tensor->size()) ==
                  doctest::Approx(0.625).epsilon(0.05));
        }
    }
}

TEST_CASE("dominant_key inputs give one key more than 0.99 of every row's weight") {
    for (const bool causal : {false, true}) {
        for (const float scale : {0.125F, -0.125F}) {
            CAPTURE(causal);
            CAPTURE(scale);
            Attention attention({.heads = 2,
                                 .seqlen_q = 200,
                                 .seqlen_kv = 200,
                                 .head_dim = 64,
                                 .causal = causal,
                                 .softmax_scale = scale},
                                InputKind::dominant_key);
            attention.forward();
            CHECK(std::ranges::min(largest_weights(attention)) > 0.99);
        }
    }
}

TEST_CASE("dominant_key and low_lse inputs hold what they promise for grouped heads") {
    AttentionProblem problem{
        .batch = 2, .heads = 4, .heads_kv = 2, .seqlen_q = 64, .seqlen_kv = 96, .head_dim = 64};
    for (const bool causal : {false, true}) {
        problem.causal = causal;
        Attention dominant(problem, InputKind::dominant_key);
        dominant.forward();
        // The lengths are ordered so that every query attends to key 0.
        for (std::size_t row = 0; row < dominant.lse.size(); ++row) {
            double largest = 0;
            for (std::size_t j = 0; j < 96; ++j) {
                largest = std::max(
                    largest, std::exp(dominant.logit(row / 64, row % 64, j) - dominant.lse[row]));
            }
            CHECK(largest > 0.99);
        }
        Attention low(problem, InputKind::low_lse);
        low.forward();
        CHECK(*std::ranges::max_element(low.lse) < -120);
    }
}

TEST_CASE("dominant_key inputs choose other keys for other heads unless the problem is causal") {
    Attention attention({.heads = 4, .seqlen_q = 100, .seqlen_kv = 100, .head_dim = 64},
                        InputKind::dominant_key);
    attention.forward();
    std::set<std::size_t> dominant;
    for (std::size_t head = 0; head < 4; ++head) {
        for (std::size_t j = 0; j < 100; ++j) {
            if (std::exp(attention.logit(head, 0, j) - attention.lse[head * 100]) > 0.99) {
                dominant.insert(j);
            }
        }
    }
    CHECK(dominant.size() > 1);
}

TEST_CASE("equal_rows inputs repeat one row a head, so that P is uniform and dQ and dK vanish") {
    Attention attention({.heads = 2, .seqlen_q = 32, .seqlen_kv = 32, .head_dim = 16},
                        InputKind::equal_rows);
    constexpr std::size_t head = std::size_t{32} * 16;
    for (const auto* tensor : {&attention.q, &attention.k, &attention.v, &attention.d_o}) {
        int differing = 0;
        for (std::size_t i = 0; i < tensor->size(); ++i) {
            const std::size_t first_row = i / head * head + i % 16;
            differing += (*tensor)[i] == (*tensor)[first_row] ? 0 : 1;
        }
        CHECK(differing == 0);
        CHECK((*tensor)[0] != (*tensor)[head]);
    }
    attention.forward();
    attention.backward();
    for (const double weight : largest_weights(attention)) {
        CHECK(weight == doctest::Approx(1.0 / 32).epsilon(1e-9));
    }
    const auto vanishes = [](double x) { return std::abs(x) < 1e-12; };
    CHECK(std::ranges::all_of(attention.d_q, vanishes));
    CHECK(std::ranges::all_of(attention.d_k, vanishes));
    CHECK(attention.d_v[0] == doctest::Approx(attention.d_o[0]));
}

TEST_CASE("heavy_tails inputs have outliers that a normal distribution would not") {
    const Attention attention({.heads = 2, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 64},
                              InputKind::heavy_tails);
    for (const auto* tensor : {&attention.q, &attention.k, &attention.v, &attention.d_o}) {
        double squares = 0;
        double largest = 0;
        for (const double x : *tensor) {
            squares += x * x;
            largest = std::max(largest, std::abs(x));
        }
        CHECK(squares / static_cast<double>(tensor->size()) == doctest::Approx(1).epsilon(0.3));
        CHECK(largest > 10);
        CHECK(std::isfinite(largest));
    }
}

TEST_CASE("every input kind is finite in both types, and is found by its name") {
    for (const InputKind kind : backlight::verification::input_kinds) {
        CHECK(backlight::verification::input_kind(to_string(kind)) == kind);
        for (const DataType type : {DataType::bf16, DataType::fp16}) {
            CAPTURE(to_string(kind));
            const Attention attention(
                {.seqlen_q = 100, .seqlen_kv = 100, .head_dim = 64, .dtype = type}, kind);
            for (const auto* tensor : {&attention.q, &attention.k, &attention.v, &attention.d_o}) {
                CHECK(std::ranges::all_of(*tensor, [](double x) { return std::isfinite(x); }));
            }
        }
    }
    CHECK(code_of([] { backlight::verification::input_kind("nomral"); }) ==
          ErrorCode::invalid_argument);
}

TEST_CASE("inputs that a softmax scale or shape makes impossible are refused") {
    AttentionProblem problem{.seqlen_q = 8, .seqlen_kv = 8, .head_dim = 8, .softmax_scale = 0.0F};
    for (const InputKind kind : {InputKind::large_logits, InputKind::low_lse, InputKind::high_lse,
                                 InputKind::dominant_key}) {
        CAPTURE(to_string(kind));
        CHECK(code_of([&] { make_inputs(problem, kind, 1); }) == ErrorCode::invalid_argument);
    }
    CHECK_NOTHROW(make_inputs(problem, InputKind::normal, 1));
    problem.softmax_scale = 1e-12F;
    problem.dtype = DataType::fp16;
    CHECK(code_of([&] { make_inputs(problem, InputKind::low_lse, 1); }) ==
          ErrorCode::invalid_argument);
    problem.seqlen_kv = -1;
    CHECK(code_of([&] { make_inputs(problem, InputKind::normal, 1); }) ==
          ErrorCode::invalid_argument);
    const AttentionProblem window{.seqlen_q = 8, .seqlen_kv = 8, .head_dim = 8, .window_left = 4};
    CHECK_NOTHROW(make_inputs(window, InputKind::low_lse, 1));
    CHECK(code_of([&] { make_inputs(window, InputKind::dominant_key, 1); }) ==
          ErrorCode::invalid_argument);
}
