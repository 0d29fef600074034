#include "verify_problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "subcommand.hpp"

namespace backlight::tool {

namespace {

using verification::InputKind;

CheckedProblem checked(const ProblemAxes& axes, std::int64_t batch, std::int64_t heads,
                       std::int64_t seqlen) {
    return {.problem = {.batch = batch,
                        .heads = heads,
                        .seqlen_q = seqlen,
                        .seqlen_kv = seqlen,
                        .head_dim = axes.head_dim,
                        .causal = axes.causal,
                        .dtype = axes.dtype,
                        .softmax_scale = std::nullopt},
            .repeats = axes.repeats};
}

struct Extents {
    std::int64_t batch, heads, seqlen;
};

/// From one tile of the largest preset to five, alone and in a batch of heads.
std::vector<Extents> small_extents(const ProblemAxes& axes, InputKind kind) {
    std::vector<Extents> all;
    if (axes.emulated) {
        if (axes.quick || kind != InputKind::normal) {
            return {{1, 1, 64}, {1, 2, 192}, {1, 2, 256}};
        }
        return {{1, 1, 64},  {2, 3, 64},  {1, 1, 128}, {1, 2, 192},
                {1, 1, 256}, {1, 1, 320}, {1, 1, 384}};
    }
    const std::vector<std::int64_t> lengths =
        axes.quick ? std::vector<std::int64_t>{64, 192, 256}
                   : std::vector<std::int64_t>{64, 128, 192, 256, 320, 384};
    for (const std::int64_t seqlen : lengths) {
        all.push_back({1, 1, seqlen});
        all.push_back({2, 3, seqlen});
    }
    return all;
}

ProblemGroup small_group(const ProblemAxes& axes, InputKind kind) {
    ProblemGroup group{.name = fmt::format("small {}", verification::to_string(kind)),
                       .problems = {}};
    for (const auto& [batch, heads, seqlen] : small_extents(axes, kind)) {
        CheckedProblem problem = checked(axes, batch, heads, seqlen);
        problem.inputs = kind;
        problem.seed = static_cast<std::uint64_t>(seqlen + batch);
        group.problems.push_back(problem);
    }
    return group;
}

/// Extents that are all equal, or all different, find every pair that a kernel confuses.
ProblemGroup extents_group(const ProblemAxes& axes) {
    ProblemGroup group{.name = "extents", .problems = {}};
    if (axes.head_dim == 64 && !axes.emulated) {
        CheckedProblem equal = checked(axes, 64, 64, 64);
        equal.reference = Reference::device_fp32;  // 4096 heads: too many for the host
        group.problems.push_back(equal);
    }
    CheckedProblem different = checked(axes, 2, 3, 192);
    if (!axes.causal) {
        different.problem.seqlen_kv = 320;
    }
    group.problems.push_back(different);
    // The same for kernels with tiles of 128 keys.
    different.problem.seqlen_q = axes.causal ? 256 : 192;
    different.problem.seqlen_kv = 256;
    group.problems.push_back(different);
    if (!axes.emulated) {
        // More heads than wgmma's accumulator of dQ has places for.
        CheckedProblem many = checked(axes, 4, 64, 256);
        many.reference = Reference::device_fp32;
        group.problems.push_back(many);
    }
    return group;
}

ProblemGroup strides_group(const ProblemAxes& axes) {
    ProblemGroup group{.name = "strides", .problems = {}};
    for (const Layout layout : {Layout::bshd, Layout::packed_qkv}) {
        for (const auto& [batch, heads] : {std::pair{1, 1}, std::pair{2, 3}}) {
            CheckedProblem problem = checked(axes, batch, heads, axes.emulated ? 128 : 384);
            problem.layout = layout;
            group.problems.push_back(problem);
        }
    }
    return group;
}

ProblemGroup scale_group(const ProblemAxes& axes) {
    ProblemGroup group{.name = "softmax_scale", .problems = {}};
    for (const float scale : {0.03F, -0.1F, 0.0F}) {
        CheckedProblem problem = checked(axes, 1, 2, axes.emulated ? 128 : 384);
        problem.problem.softmax_scale = scale;
        group.problems.push_back(problem);
    }
    return group;
}

ProblemGroup large_group(const ProblemAxes& axes) {
    ProblemGroup group{.name = "large", .problems = {}};
    CheckedProblem problem = checked(axes, 2, 4, 512);
    problem.reference = Reference::device_fp32;
    group.problems.push_back(problem);
    if (!axes.quick) {
        problem = checked(axes, 1, 2, 4096);
        problem.reference = Reference::device_fp32;
        group.problems.push_back(problem);
    }
    return group;
}

/// What shows in a minute on two cores that the emulated device and the kernels work.
std::vector<ProblemGroup> quick_emulated_groups(const ProblemAxes& axes) {
    ProblemGroup strides{.name = "strides", .problems = {checked(axes, 2, 1, 128)}};
    strides.problems[0].layout = Layout::packed_qkv;
    ProblemGroup low_lse{.name = "small low_lse", .problems = {checked(axes, 1, 1, 128)}};
    low_lse.problems[0].inputs = InputKind::low_lse;
    return {small_group(axes, InputKind::normal), std::move(low_lse), std::move(strides)};
}

bool excluded(const CheckedProblem& problem) {
    return (problem.layout == Layout::packed_qkv &&
            problem.problem.effective_head_dim_v() != problem.problem.head_dim) ||
           (problem.inputs == InputKind::dominant_key && problem.problem.window_left);
}

std::vector<ProblemGroup> with_features(std::vector<ProblemGroup> groups,
                                        const ProblemFeatures& features) {
    // Before it is multiplied, beyond what a number can hold.
    constexpr std::int64_t most_heads_kv = std::int64_t{1} << 20U;
    if (features.heads_kv && (*features.heads_kv < 1 || *features.heads_kv > most_heads_kv)) {
        throw refused("heads-kv", std::to_string(*features.heads_kv), "from 1 to 1048576");
    }
    for (ProblemGroup& group : groups) {
        for (CheckedProblem& problem : group.problems) {
            problem.problem = features.applied_to(problem.problem);
            if (features.heads_kv) {
                constexpr std::int64_t smallest_group = 2;
                problem.problem.heads =
                    *features.heads_kv * std::max(problem.problem.heads, smallest_group);
            }
        }
        std::erase_if(group.problems, excluded);
    }
    return groups;
}

}  // namespace

std::vector<ProblemGroup> problem_groups(const ProblemAxes& axes) {
    if (axes.emulated && axes.quick) {
        return with_features(quick_emulated_groups(axes), axes.features);
    }
    std::vector<ProblemGroup> all;
    for (const InputKind kind : verification::input_kinds) {
        if (!axes.quick || kind == InputKind::normal || kind == InputKind::low_lse) {
            all.push_back(small_group(axes, kind));
        }
    }
    all.push_back(extents_group(axes));
    all.push_back(strides_group(axes));
    all.push_back(scale_group(axes));
    if (!axes.emulated) {
        all.push_back(large_group(axes));
    }
    return with_features(std::move(all), axes.features);
}

}  // namespace backlight::tool
