#include "attention/mask.hpp"

#include <algorithm>

namespace backlight::attention {

MaskBand::MaskBand(const AttentionProblem& problem) noexcept {
    const std::int64_t lowest = lowest_diagonal(problem);
    const std::int64_t highest = highest_diagonal(problem);
    const std::int64_t own = problem.mask_alignment == MaskAlignment::bottom_right
                                 ? problem.seqlen_kv - problem.seqlen_q
                                 : 0;
    // Differences rather than sums: a window may be as wide as 64 bits hold.
    first_diagonal = lowest;
    if (problem.window_left && *problem.window_left < own - lowest) {
        first_diagonal = own - *problem.window_left;
    }
    last_diagonal = highest;
    if (problem.window_right && *problem.window_right < highest - own) {
        last_diagonal = own + *problem.window_right;
    }
    if (problem.causal) {
        last_diagonal = std::min(last_diagonal, own);
    }
}

MaskBand MaskBand::around_own_diagonal(const AttentionProblem& problem) noexcept {
    // No length is more, and no sum of two of these leaves 32 bits.
    constexpr std::int64_t beyond = (std::int64_t{1} << 30) - 1;
    MaskBand band;
    band.first_diagonal = -std::min(problem.window_left.value_or(beyond), beyond);
    band.last_diagonal =
        problem.causal ? 0 : std::min(problem.window_right.value_or(beyond), beyond);
    return band;
}

}  // namespace backlight::attention
