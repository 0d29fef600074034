#include "attention/family_support.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

#include "attention/mask.hpp"
#include "attention/tiles.hpp"
#include "backlight/error.hpp"

namespace backlight::attention {

namespace {

constexpr std::array<std::int64_t, 2> square_head_dims = {64, 128};

/// What kernels take beyond equal heads and head dimensions, whole tiles, no mask or the causal one
/// over equal lengths, and gradients in the type of the inputs.
struct Features {
    /// Every head dimension up to this, of queries and keys and of values, in any combination; 0:
    /// only those of square_head_dims, the same of both.
    std::int64_t any_head_dim_up_to = 0;
    /// Fewer heads of keys and values than of queries.
    bool grouped_heads = false;
    /// Lengths that the tiles do not divide.
    bool partial_tiles = false;
    /// The causal mask over unequal lengths, in both alignments.
    bool oblong_causal = false;
    /// Windows, in both alignments.
    bool window = false;
    bool fp32_gradients = false;
    /// Gradients are added to what there is.
    bool accumulated_gradients = false;
    /// dQ is summed in one order.
    bool deterministic = false;
    /// Sequences of different lengths in the same tensors.
    bool packed = false;
};

/// All of it, with head dimensions up to this.
constexpr Features everything(std::int64_t any_head_dim_up_to) {
    return {.any_head_dim_up_to = any_head_dim_up_to,
            .grouped_heads = true,
            .partial_tiles = true,
            .oblong_causal = true,
            .window = true,
            .fp32_gradients = true,
            .accumulated_gradients = true,
            .deterministic = true,
            .packed = true};
}

constexpr Features features_of(KernelFamily family) {
    switch (family) {
        case KernelFamily::wgmma:
            return everything(128);
        case KernelFamily::mma_resident:
            return everything(256);
        case KernelFamily::mma:
            return {};
    }
    return {};
}

/// Whether the window masks anything that `causal` does not.
bool window_matters(const AttentionProblem& problem) {
    AttentionProblem without = problem;
    without.window_left = without.window_right = std::nullopt;
    return MaskBand(problem) != MaskBand(without);
}

Unsupported window_unsupported(const AttentionProblem& problem) {
    const bool left = problem.window_left.has_value();
    return {fmt::format("window_{} is {}", left ? "left" : "right",
                        left ? *problem.window_left : *problem.window_right),
            "it must be left out"};
}

std::optional<Unsupported> unsupported_head_dim(const AttentionProblem& problem,
                                                std::int64_t any_up_to) {
    const std::int64_t head_dim_v = problem.effective_head_dim_v();
    if (any_up_to > 0) {
        const std::string rule = fmt::format("it must be at most {}", any_up_to);
        if (problem.head_dim > any_up_to) {
            return Unsupported{fmt::format("head_dim is {}", problem.head_dim), rule};
        }
        if (head_dim_v > any_up_to) {
            return Unsupported{fmt::format("head_dim_v is {}", head_dim_v), rule};
        }
        return std::nullopt;
    }
    if (std::ranges::count(square_head_dims, problem.head_dim) == 0) {
        return Unsupported{fmt::format("head_dim is {}", problem.head_dim),
                           fmt::format("it must be {}", fmt::join(square_head_dims, " or "))};
    }
    if (head_dim_v != problem.head_dim) {
        return Unsupported{fmt::format("head_dim_v is {}", head_dim_v),
                           fmt::format("it must be head_dim = {}", problem.head_dim)};
    }
    return std::nullopt;
}

std::optional<Unsupported> unsupported_length(std::string_view length, std::int64_t seqlen,
                                              std::string_view tile, int rows) {
    if (seqlen % rows == 0) {
        return std::nullopt;
    }
    return Unsupported{fmt::format("{} is {}", length, seqlen),
                       fmt::format("it must be a multiple of {} = {}", tile, rows)};
}

}  // namespace

std::optional<Unsupported> unsupported_feature(const AttentionProblem& problem,
                                               KernelFamily family) {
    const Features features = features_of(family);
    if (!features.packed && problem.packed) {
        return Unsupported{"packed is given", "it must be left out"};
    }
    if (auto lack = unsupported_head_dim(problem, features.any_head_dim_up_to)) {
        return lack;
    }
    if (!features.grouped_heads && problem.effective_heads_kv() != problem.heads) {
        return Unsupported{fmt::format("heads_kv is {}", problem.effective_heads_kv()),
                           fmt::format("it must be heads = {}", problem.heads)};
    }
    if (!features.window && window_matters(problem)) {
        return window_unsupported(problem);
    }
    if (!features.oblong_causal && problem.causal && problem.seqlen_q != problem.seqlen_kv) {
        return Unsupported{
            fmt::format("seqlen_q is {} and seqlen_kv is {}", problem.seqlen_q, problem.seqlen_kv),
            "with the causal mask they must be equal"};
    }
    if (!features.fp32_gradients && problem.gradient_type != GradientType::input) {
        return Unsupported{fmt::format("gradient_type is {}", to_string(problem.gradient_type)),
                           fmt::format("it must be {}", to_string(GradientType::input))};
    }
    if (!features.accumulated_gradients && problem.accumulate_gradients) {
        return Unsupported{"accumulate_gradients is true", "it must be false"};
    }
    if (!features.deterministic && problem.deterministic) {
        return Unsupported{"deterministic is true", "it must be false"};
    }
    return std::nullopt;
}

std::optional<Unsupported> unsupported_length(const AttentionProblem& problem,
                                              const TileConfig& config) {
    if (features_of(config.family).partial_tiles) {
        return std::nullopt;
    }
    auto queries = unsupported_length("seqlen_q", problem.seqlen_q, "block_q", config.block_q);
    return queries
               ? queries
               : unsupported_length("seqlen_kv", problem.seqlen_kv, "block_kv", config.block_kv);
}

void require_any_family(const AttentionProblem& problem, std::span<const KernelFamily> families) {
    struct Reason {
        Unsupported unsupported;
        std::vector<const char*> families;
    };
    std::vector<Reason> reasons;
    for (const KernelFamily family : families) {
        const std::optional<Unsupported> lack = unsupported_feature(problem, family);
        if (!lack) {
            return;
        }
        const auto known = std::ranges::find_if(reasons, [&](const Reason& reason) {
            return reason.unsupported.value == lack->value && reason.unsupported.rule == lack->rule;
        });
        if (known != reasons.end()) {
            known->families.push_back(to_string(family));
        } else {
            reasons.push_back({*lack, {to_string(family)}});
        }
    }
    std::string text;
    for (const Reason& reason : reasons) {
        text += fmt::format("{}{}: {} for {}", text.empty() ? "" : "; ", reason.unsupported.value,
                            reason.unsupported.rule, fmt::join(reason.families, ", "));
    }
    throw Error(ErrorCode::unsupported, text);
}

}  // namespace backlight::attention
