#include "backlight/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/extents.hpp"
#include "attention/mask.hpp"

namespace backlight {

namespace {

using Wide = __int128;  // sums over pairs of rows do not fit 64 bits

/// Pairs with j − i ≤ diagonal: the sum over queries of i + diagonal + 1, held between 0 and
/// seqlen_kv.
Wide pairs_up_to(std::int64_t diagonal, Wide queries, Wide keys) noexcept {
    const Wide keys_of_first = static_cast<Wide>(diagonal) + 1;
    const Wide none_before = std::clamp<Wide>(-keys_of_first, 0, queries);
    const Wide all_from = std::clamp<Wide>(keys - keys_of_first, none_before, queries);
    const auto sum_below = [](Wide end) { return end * (end - 1) / 2; };
    return (all_from - none_before) * keys_of_first + sum_below(all_from) - sum_below(none_before) +
           (queries - all_from) * keys;
}

/// Of one pair in all heads.
double flops_a_pair(const AttentionProblem& problem) noexcept {
    return static_cast<double>(problem.heads) *
           (6.0 * static_cast<double>(problem.head_dim) +
            4.0 * static_cast<double>(problem.effective_head_dim_v()));
}

std::string window_side(const std::optional<std::int64_t>& side) {
    return side ? std::to_string(*side) : "all";
}

}  // namespace

const char* to_string(DataType type) noexcept {
    switch (type) {
        case DataType::bf16:
            return "bf16";
        case DataType::fp16:
            return "fp16";
    }
    return "unknown";
}

const char* to_string(MaskAlignment alignment) noexcept {
    switch (alignment) {
        case MaskAlignment::top_left:
            return "top_left";
        case MaskAlignment::bottom_right:
            return "bottom_right";
    }
    return "unknown";
}

const char* to_string(GradientType type) noexcept {
    switch (type) {
        case GradientType::input:
            return "input";
        case GradientType::fp32:
            return "fp32";
    }
    return "unknown";
}

float AttentionProblem::effective_softmax_scale() const {
    return softmax_scale.value_or(1.0F / std::sqrt(static_cast<float>(head_dim)));
}

AttentionProblem AttentionProblem::of_sequence(const SequenceShape& shape) const {
    AttentionProblem one = *this;
    one.packed = std::nullopt;
    one.batch = 1;
    one.seqlen_q = shape.seqlen_q;
    one.seqlen_kv = shape.seqlen_kv;
    return one;
}

std::string to_string(const AttentionProblem& problem) {
    const AttentionProblem usual;
    const auto given = [](const char* name, const std::optional<std::int64_t>& value) {
        return value ? fmt::format(" {}={}", name, *value) : std::string();
    };
    std::string text = fmt::format("batch={} heads={}", problem.batch, problem.heads);
    text += given("heads_kv", problem.heads_kv);
    text += fmt::format(" seqlen_q={} seqlen_kv={} head_dim={}", problem.seqlen_q,
                        problem.seqlen_kv, problem.head_dim);
    text += given("head_dim_v", problem.head_dim_v);
    text += fmt::format(" causal={}", problem.causal);
    if (problem.mask_alignment != usual.mask_alignment) {
        text += fmt::format(" mask_alignment={}", to_string(problem.mask_alignment));
    }
    text += given("window_left", problem.window_left);
    text += given("window_right", problem.window_right);
    text += fmt::format(" dtype={}", to_string(problem.dtype));
    if (problem.gradient_type != usual.gradient_type) {
        text += fmt::format(" gradient_type={}", to_string(problem.gradient_type));
    }
    if (problem.accumulate_gradients) {
        text += " accumulate_gradients=true";
    }
    text +=
        fmt::format(" softmax_scale={}",
                    problem.softmax_scale ? fmt::format("{}", *problem.softmax_scale) : "default");
    if (problem.deterministic) {
        text += " deterministic=true";
    }
    if (problem.packed) {
        text += fmt::format(" packed total_q={} total_kv={}", problem.packed->total_q,
                            problem.packed->total_kv);
    }
    return text;
}

std::string mask_text(const AttentionProblem& problem) {
    const bool window = problem.window_left || problem.window_right;
    if (!problem.causal && !window) {
        return "full";
    }
    std::string text = problem.causal ? "causal" : "";
    if (window) {
        text += fmt::format("{}window {},{}", text.empty() ? "" : " ",
                            window_side(problem.window_left), window_side(problem.window_right));
    }
    if (problem.seqlen_q != problem.seqlen_kv || problem.packed) {
        text += fmt::format(" {}", to_string(problem.mask_alignment));
    }
    return text;
}

std::size_t AttentionProblemHash::operator()(const AttentionProblem& problem) const noexcept {
    std::size_t hash = 0;
    const auto mix = [&hash](auto value) {
        hash ^=
            std::hash<decltype(value)>{}(value) + 0x9e3779b97f4a7c15U + (hash << 6U) + (hash >> 2U);
    };
    const auto mix_optional = [&mix](const auto& value) {
        mix(value.has_value());
        mix(value.value_or(0));
    };
    mix(problem.batch);
    mix(problem.heads);
    mix_optional(problem.heads_kv);
    mix(problem.seqlen_q);
    mix(problem.seqlen_kv);
    mix(problem.head_dim);
    mix_optional(problem.head_dim_v);
    mix(problem.causal);
    mix(static_cast<int>(problem.mask_alignment));
    mix_optional(problem.window_left);
    mix_optional(problem.window_right);
    mix(static_cast<int>(problem.dtype));
    mix(static_cast<int>(problem.gradient_type));
    mix(problem.accumulate_gradients);
    mix_optional(problem.softmax_scale);
    mix(problem.deterministic);
    mix(problem.packed.has_value());
    if (problem.packed) {
        mix(problem.packed->total_q);
        mix(problem.packed->total_kv);
    }
    return hash;
}

double attended_pairs(const AttentionProblem& problem) noexcept {
    const double all =
        static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_kv);
    const bool masked = problem.causal || problem.window_left || problem.window_right;
    // Below 0 the sums of pairs_up_to have no meaning; such problems are refused elsewhere.
    if (!masked || problem.is_empty() || problem.seqlen_q < 0 || problem.seqlen_kv < 0) {
        return all;
    }
    const attention::MaskBand band(problem);
    if (problem.seqlen_q == problem.seqlen_kv && band.last_diagonal == 0 &&
        band.first_diagonal == attention::MaskBand::lowest_diagonal(problem)) {
        return all / 2;
    }
    const Wide pairs = pairs_up_to(band.last_diagonal, problem.seqlen_q, problem.seqlen_kv) -
                       pairs_up_to(band.first_diagonal - 1, problem.seqlen_q, problem.seqlen_kv);
    return static_cast<double>(pairs);
}

double attended_pairs(const AttentionProblem& problem,
                      std::span<const SequenceShape> sequences) noexcept {
    double pairs = 0;
    for (const SequenceShape& shape : sequences) {
        pairs += attended_pairs(problem.of_sequence(shape));
    }
    return pairs;
}

double backward_flops(const AttentionProblem& problem) noexcept {
    return static_cast<double>(problem.batch) * attended_pairs(problem) * flops_a_pair(problem);
}

double backward_flops(const AttentionProblem& problem,
                      std::span<const SequenceShape> sequences) noexcept {
    return attended_pairs(problem, sequences) * flops_a_pair(problem);
}

double backward_bytes(const AttentionProblem& problem) noexcept {
    // Of any extents: their product may be more than 64 bits hold.
    const auto rows_of = [](const attention::Extents& extents) {
        return static_cast<double>(extents.batch) * static_cast<double>(extents.heads) *
               static_cast<double>(extents.seqlen);
    };
    const double rows_q = rows_of(attention::query_extents(problem));
    const double rows_kv = rows_of(attention::key_extents(problem));
    const auto depth = static_cast<double>(problem.head_dim);
    const auto depth_v = static_cast<double>(problem.effective_head_dim_v());
    const double inputs =
        rows_q * (depth + 2 * depth_v) + rows_kv * (depth + depth_v);  // Q O dO K V
    const double outputs = rows_q * depth + rows_kv * (depth + depth_v);
    const double output_bytes = (problem.gradient_type == GradientType::fp32 ? 4.0 : 2.0) *
                                (problem.accumulate_gradients ? 2.0 : 1.0);
    return 2.0 * inputs + output_bytes * outputs + 4.0 * rows_q;  // and LSE
}

}  // namespace backlight
