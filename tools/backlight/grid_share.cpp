#include "grid_share.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "attention/family_support.hpp"
#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "tuning/search_space.hpp"

namespace backlight::tool {

namespace {

/// A feature of a problem, and a problem that has nothing else.
struct Feature {
    std::string name;
    AttentionProblem alone;
};

std::vector<Feature> features_of(const AttentionProblem& problem) {
    std::vector<Feature> all;
    const AttentionProblem plain{
        .seqlen_q = 1024, .seqlen_kv = 1024, .head_dim = 64, .dtype = problem.dtype};
    const auto add = [&](std::string name, const auto& change) {
        Feature feature{.name = std::move(name), .alone = plain};
        change(feature.alone);
        all.push_back(std::move(feature));
    };
    add(fmt::format("head dimension {}", problem.head_dim),
        [&](AttentionProblem& alone) { alone.head_dim = problem.head_dim; });
    if (problem.effective_head_dim_v() != problem.head_dim) {
        add("another head dimension of values", [](AttentionProblem& alone) {
            alone.head_dim = 128;
            alone.head_dim_v = 64;
        });
    }
    if (problem.effective_heads_kv() != problem.heads) {
        add("grouped heads", [](AttentionProblem& alone) {
            alone.heads = 4;
            alone.heads_kv = 2;
        });
    }
    if (problem.window_left || problem.window_right) {
        add("window", [&](AttentionProblem& alone) {
            alone.causal = problem.causal;
            alone.seqlen_q = problem.seqlen_q;
            alone.seqlen_kv = problem.seqlen_kv;
            alone.mask_alignment = problem.mask_alignment;
            alone.window_left = problem.window_left;
            alone.window_right = problem.window_right;
        });
    } else if (problem.causal && problem.seqlen_q != problem.seqlen_kv) {
        add("causal mask over unequal lengths", [&](AttentionProblem& alone) {
            alone.causal = true;
            alone.seqlen_q = problem.seqlen_q;
            alone.seqlen_kv = problem.seqlen_kv;
            alone.mask_alignment = problem.mask_alignment;
        });
    }
    if (problem.gradient_type == GradientType::fp32) {
        add("fp32 gradients",
            [](AttentionProblem& alone) { alone.gradient_type = GradientType::fp32; });
    }
    if (problem.accumulate_gradients) {
        add("accumulated gradients", [](AttentionProblem& alone) {
            alone.gradient_type = GradientType::fp32;
            alone.accumulate_gradients = true;
        });
    }
    if (problem.packed) {
        add("packed sequences", [](AttentionProblem& alone) {
            alone.packed = PackedSequences{.total_q = alone.seqlen_q, .total_kv = alone.seqlen_kv};
        });
    }
    if (problem.deterministic) {
        add("deterministic", [](AttentionProblem& alone) { alone.deterministic = true; });
    }
    return all;
}

}  // namespace

std::vector<std::string> features_not_taken(const AttentionProblem& problem,
                                            const TileConfig& config,
                                            const device::Target& target) {
    if (tuning::is_legal(config, problem, target)) {
        return {};
    }
    std::vector<std::string> lacking;
    for (const Feature& feature : features_of(problem)) {
        if (attention::unsupported_feature(feature.alone, config.family)) {
            lacking.push_back(feature.name);
        }
    }
    if (attention::unsupported_length(problem, config)) {
        lacking.emplace_back("lengths that its tiles do not divide");
    }
    if (lacking.empty()) {
        try {
            attention::validate(problem);
            attention::validate(config, problem, target);
        } catch (const Error& error) {
            lacking.emplace_back(error.what());
        }
    }
    return lacking;
}

GridShare grid_share(const VerificationGrid& grid, const NamedConfig& kernel,
                     const device::Target& target) {
    GridShare share;
    const auto config = [&](const AttentionProblem& problem) {
        return config_for(kernel, problem, target);
    };
    share.problems = grid.problems([&](const AttentionProblem& problem) {
        return tuning::is_legal(config(problem), problem, target);
    });
    for (const CheckedProblem& checked : grid.problems()) {
        const AttentionProblem& problem = checked.problem;
        const std::vector<std::string> lacking =
            features_not_taken(problem, config(problem), target);
        ++share.whole;
        share.not_taken += lacking.empty() ? 0 : 1;
        for (const std::string& feature : lacking) {
            const auto known =
                std::ranges::find(share.lacking, feature, &std::pair<std::string, int>::first);
            if (known == share.lacking.end()) {
                share.lacking.emplace_back(feature, 1);
            } else {
                ++known->second;
            }
        }
    }
    std::ranges::stable_sort(share.lacking, [](const auto& left, const auto& right) {
        return left.second > right.second;
    });
    return share;
}

std::string share_text(const std::string& kernel, const GridShare& share) {
    if (share.not_taken == 0) {
        return fmt::format("{} takes all of the grid: {} problems\n", kernel, share.whole);
    }
    std::string text = fmt::format(
        "{} does not take {} of the grid's {} problems; {} others have all pairs of what it "
        "takes\n",
        kernel, share.not_taken, share.whole, share.problems.size());
    for (const auto& [feature, problems] : share.lacking) {
        text += fmt::format("  not taken: {}: {} problems\n", feature, problems);
    }
    return text;
}

}  // namespace backlight::tool
