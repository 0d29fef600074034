#pragma once

#include <cstdint>

#include "backlight/problem.hpp"

namespace backlight::attention {

/// A mask as the band of diagonals that it leaves of the scores: query i attends to key j if
/// first_diagonal ≤ j − i ≤ last_diagonal. Every mask of AttentionProblem is one. Bounds that cut
/// nothing off are 1 − seqlen_q and seqlen_kv − 1, so that equal bands of equal lengths are equal
/// masks. The problem is valid.
struct MaskBand {
    std::int64_t first_diagonal = 0;
    std::int64_t last_diagonal = 0;

    explicit MaskBand(const AttentionProblem& problem) noexcept;

    /// The same relative to the diagonal that a sequence's lengths make its own, whatever they are:
    /// of packed sequences. Bounds that are not given are beyond all lengths.
    static MaskBand around_own_diagonal(const AttentionProblem& problem) noexcept;

    bool operator==(const MaskBand&) const = default;

    /// No pair is masked on that side of the band.
    static std::int64_t lowest_diagonal(const AttentionProblem& problem) noexcept {
        return 1 - problem.seqlen_q;
    }
    static std::int64_t highest_diagonal(const AttentionProblem& problem) noexcept {
        return problem.seqlen_kv - 1;
    }

    /// Whether it cuts anything off on that side.
    bool is_bounded_first(const AttentionProblem& problem) const noexcept {
        return first_diagonal > lowest_diagonal(problem);
    }
    bool is_bounded_last(const AttentionProblem& problem) const noexcept {
        return last_diagonal < highest_diagonal(problem);
    }

  private:
    MaskBand() = default;
};

}  // namespace backlight::attention
