#include "tuning/record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <ctime>
#include <limits>

namespace backlight::tuning {

namespace {

std::int64_t power_of_two_above(std::int64_t value) {
    constexpr std::int64_t largest = std::int64_t{1} << 62;
    return value > largest ? largest
                           : static_cast<std::int64_t>(std::bit_ceil(
                                 static_cast<std::uint64_t>(std::max<std::int64_t>(value, 1))));
}

/// Of two powers of two.
int doublings(std::int64_t left, std::int64_t right) {
    return std::abs(std::countr_zero(static_cast<std::uint64_t>(left)) -
                    std::countr_zero(static_cast<std::uint64_t>(right)));
}

}  // namespace

Card card_of(const device::DeviceProperties& properties) {
    return {.name = properties.name,
            .multiprocessors = properties.multiprocessors,
            .target = properties.target.name};
}

Bucket bucket_of(const AttentionProblem& problem) {
    constexpr std::int64_t least_length = 64;
    // Both are below 2^31 in every problem that is valid.
    constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
    const std::int64_t batch_heads = std::min(problem.batch, most) * std::min(problem.heads, most);
    const auto rounded = [](const std::optional<std::int64_t>& bound) {
        // 0 is a mask of another kind.
        return bound && *bound > 0 ? std::optional(power_of_two_above(*bound)) : bound;
    };
    const bool aligned = problem.seqlen_q == problem.seqlen_kv ||
                         !(problem.causal || problem.window_left || problem.window_right);
    return {.dtype = problem.dtype,
            .head_dim = problem.head_dim,
            .causal = problem.causal,
            .seqlen_q = std::max(power_of_two_above(problem.seqlen_q), least_length),
            .seqlen_kv = std::max(power_of_two_above(problem.seqlen_kv), least_length),
            .batch_heads = power_of_two_above(batch_heads),
            .head_dim_v = problem.effective_head_dim_v(),
            .heads_per_kv_head =
                problem.heads / std::max<std::int64_t>(problem.effective_heads_kv(), 1),
            .mask_alignment = aligned ? MaskAlignment::bottom_right : problem.mask_alignment,
            .window_left = rounded(problem.window_left),
            .window_right = rounded(problem.window_right),
            .gradient_type = problem.gradient_type,
            .accumulate_gradients = problem.accumulate_gradients,
            .deterministic = problem.deterministic};
}

std::optional<int> distance(const Bucket& left, const Bucket& right) {
    constexpr int most_doublings = 3;
    const int queries = doublings(left.seqlen_q, right.seqlen_q);
    const int keys = doublings(left.seqlen_kv, right.seqlen_kv);
    Bucket nearest = left;  // the bucket of `right`, if these are all that differs
    nearest.dtype = right.dtype;
    nearest.seqlen_q = right.seqlen_q;
    nearest.seqlen_kv = right.seqlen_kv;
    nearest.batch_heads = right.batch_heads;
    if (nearest != right || std::max(queries, keys) > most_doublings) {
        return std::nullopt;
    }
    return 2 * (queries + keys) + doublings(left.batch_heads, right.batch_heads) +
           (left.dtype != right.dtype ? 1 : 0);
}

std::string to_string(const Bucket& bucket) {
    const AttentionProblem mask{.seqlen_q = bucket.seqlen_q,
                                .seqlen_kv = bucket.seqlen_kv,
                                .causal = bucket.causal,
                                .mask_alignment = bucket.mask_alignment,
                                .window_left = bucket.window_left,
                                .window_right = bucket.window_right};
    std::string text = fmt::format("{} head_dim={} {} seqlen_q={} seqlen_kv={} batch·heads={}",
                                   to_string(bucket.dtype), bucket.head_dim, mask_text(mask),
                                   bucket.seqlen_q, bucket.seqlen_kv, bucket.batch_heads);
    if (bucket.head_dim_v != bucket.head_dim) {
        text += fmt::format(" head_dim_v={}", bucket.head_dim_v);
    }
    if (bucket.heads_per_kv_head != 1) {
        text += fmt::format(" heads/heads_kv={}", bucket.heads_per_kv_head);
    }
    if (bucket.gradient_type != GradientType::input) {
        text += fmt::format(" gradient_type={}", to_string(bucket.gradient_type));
    }
    if (bucket.accumulate_gradients) {
        text += " accumulate_gradients";
    }
    return bucket.deterministic ? text + " deterministic" : text;
}

bool same_place(const Record& left, const Record& right) {
    return left.config == right.config && left.card == right.card &&
           bucket_of(left.problem) == bucket_of(right.problem) &&
           serves_lengths(left, right.problem);
}

bool serves_lengths(const Record& record, const AttentionProblem& problem) {
    return record.config.sequence_lengths == SequenceLengths::run_time ||
           (record.problem.seqlen_q == problem.seqlen_q &&
            record.problem.seqlen_kv == problem.seqlen_kv);
}

bool covers(const Record& record, KernelFamily family) {
    return record.config.family == family || std::ranges::count(record.families, family) > 0;
}

std::string now_utc() {
    return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

}  // namespace backlight::tuning
