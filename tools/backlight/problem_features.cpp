#include "problem_features.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "backlight/error.hpp"
#include "subcommand.hpp"

namespace backlight::tool {

namespace {

constexpr std::string_view unbounded = "all";

/// Keys to one side, or "all".
std::optional<std::int64_t> window_side(std::string_view text, const std::string& window) {
    if (text == unbounded) {
        return std::nullopt;
    }
    std::int64_t keys = 0;
    const auto [next, failure] = std::from_chars(text.data(), text.data() + text.size(), keys);
    if (failure != std::errc{} || next != text.data() + text.size() || keys < 0) {
        throw refused("window", window,
                      "LEFT,RIGHT: keys before and after a query's own position that it attends "
                      "to, 0 or more, or all; for example 1024,0");
    }
    return keys;
}

}  // namespace

PackedSequences packed_of_equal_lengths(const AttentionProblem& problem) {
    return {.total_q = problem.batch * problem.seqlen_q,
            .total_kv = problem.batch * problem.seqlen_kv};
}

AttentionProblem with_seqlen(AttentionProblem problem, std::int64_t seqlen) {
    problem.seqlen_q = seqlen;
    if (problem.seqlen_kv == 0) {
        problem.seqlen_kv = seqlen;
    }
    if (problem.packed) {
        problem.packed = packed_of_equal_lengths(problem);
    }
    return problem;
}

AttentionProblem ProblemFeatures::applied_to(AttentionProblem problem) const {
    problem.heads = heads.value_or(problem.heads);
    problem.heads_kv = heads_kv;
    problem.head_dim_v = head_dim_v;
    problem.seqlen_kv = seqlen_kv.value_or(problem.seqlen_kv);
    problem.mask_alignment = mask_alignment;
    problem.window_left = window_left;
    problem.window_right = window_right;
    problem.gradient_type = gradient_type;
    problem.accumulate_gradients = accumulate_gradients;
    problem.deterministic = deterministic;
    if (packed) {
        problem.packed = packed_of_equal_lengths(problem);
    }
    return problem;
}

std::string ProblemFeatures::command_line() const {
    std::string text;
    const auto add = [&](const char* option, const std::optional<std::int64_t>& value) {
        if (value) {
            text += fmt::format(" {} {}", option, *value);
        }
    };
    add("--heads", heads);
    add("--heads-kv", heads_kv);
    add("--head-dim-v", head_dim_v);
    add("--seqlen-kv", seqlen_kv);
    if (mask_alignment == MaskAlignment::top_left) {
        text += " --mask top-left";
    }
    if (window_left || window_right) {
        const auto side = [](const std::optional<std::int64_t>& keys) {
            return keys ? std::to_string(*keys) : std::string(unbounded);
        };
        text += fmt::format(" --window {},{}", side(window_left), side(window_right));
    }
    if (gradient_type == GradientType::fp32) {
        text += " --gradient-type fp32";
    }
    if (accumulate_gradients) {
        text += " --accumulate";
    }
    if (packed) {
        text += " --packed";
    }
    return deterministic ? text + " --deterministic" : text;
}

namespace {

/// Numbers of queries and of keys, once where they are the same.
std::string pair_text(std::int64_t queries, std::int64_t keys) {
    return queries == keys ? std::to_string(queries) : fmt::format("{}/{}", queries, keys);
}

/// " fp32 gradients accumulated deterministic"; empty of usual ones.
std::string gradient_text(const AttentionProblem& problem) {
    std::string text = problem.gradient_type == GradientType::fp32 ? " fp32 gradients" : "";
    if (problem.accumulate_gradients) {
        text += " accumulated";
    }
    return problem.deterministic ? text + " deterministic" : text;
}

}  // namespace

std::string head_dims_text(const AttentionProblem& problem) {
    return pair_text(problem.head_dim, problem.effective_head_dim_v());
}

std::string short_text(const AttentionProblem& problem) {
    const std::string packed =
        problem.packed ? fmt::format(" packed {}",
                                     pair_text(problem.packed->total_q, problem.packed->total_kv))
                       : "";
    return fmt::format("B={} H={} N={} d={} {} {}{}{}", problem.batch,
                       pair_text(problem.heads, problem.effective_heads_kv()),
                       pair_text(problem.seqlen_q, problem.seqlen_kv), head_dims_text(problem),
                       to_string(problem.dtype), mask_text(problem), packed,
                       gradient_text(problem));
}

std::string kernel_text(const AttentionProblem& problem) {
    return fmt::format("d={} {} {}", head_dims_text(problem), to_string(problem.dtype),
                       feature_text(problem));
}

std::string feature_text(const AttentionProblem& problem) {
    return fmt::format("{}{}{}{}", mask_text(problem),
                       problem.effective_heads_kv() != problem.heads ? " grouped heads" : "",
                       problem.packed ? " packed" : "", gradient_text(problem));
}

MaskAlignment parse_mask_alignment(std::string_view text) {
    if (text == "top-left" || text == to_string(MaskAlignment::top_left)) {
        return MaskAlignment::top_left;
    }
    if (text == "bottom-right" || text == to_string(MaskAlignment::bottom_right)) {
        return MaskAlignment::bottom_right;
    }
    throw refused("mask", std::string(text), "top-left or bottom-right");
}

GradientType parse_gradient_type(std::string_view text) {
    for (const GradientType type : {GradientType::input, GradientType::fp32}) {
        if (text == to_string(type)) {
            return type;
        }
    }
    throw refused("gradient-type", std::string(text), "input or fp32");
}

void FeatureArguments::add_to(CLI::App& command) {
    command.add_option("--mask", mask_,
                       "Where lengths differ, the causal mask and the window go with their begin, "
                       "top-left, or their end, bottom-right [bottom-right]");
    command.add_option("--window", window_,
                       "LEFT,RIGHT: keys before and after a query's own position that it attends "
                       "to, each a number or all [all,all]");
    command.add_option("--gradient-type", gradient_type_,
                       "Of dQ, dK and dV: input (the other tensors' type) or fp32 [input]");
    command.add_flag("--accumulate", features_.accumulate_gradients,
                     "Add to what the gradients hold; with --gradient-type fp32");
    command.add_flag("--deterministic", features_.deterministic,
                     "Equal bits from every run, in dQ too");
}

void FeatureArguments::add_heads_to(CLI::App& command) {
    command.add_option("--heads-kv", features_.heads_kv,
                       "Heads of keys and values [as many as of queries]");
    command.add_option("--head-dim-v", features_.head_dim_v,
                       "Head dimension of values and outputs [that of queries and keys]");
    command.add_flag("--packed", features_.packed,
                     "The batch's sequences packed one after another, by cu_seqlens");
}

void FeatureArguments::add_query_heads_to(CLI::App& command) {
    command.add_option("--heads", features_.heads,
                       "Heads of queries where there is no shape; kernels ask only whether there "
                       "are more than of keys and values [1]");
}

void FeatureArguments::add_seqlen_kv_to(CLI::App& command) {
    command.add_option("--seqlen-kv", features_.seqlen_kv, "Length of keys [the shape's]");
}

ProblemFeatures FeatureArguments::resolve() const {
    ProblemFeatures features = features_;
    if (!mask_.empty()) {
        features.mask_alignment = parse_mask_alignment(mask_);
    }
    if (!gradient_type_.empty()) {
        features.gradient_type = parse_gradient_type(gradient_type_);
    }
    if (!window_.empty()) {
        const std::size_t comma = std::min(window_.find(','), window_.size());
        const std::string_view text = window_;
        features.window_left = window_side(text.substr(0, comma), window_);
        features.window_right = window_side(text.substr(std::min(comma + 1, text.size())), window_);
    }
    return features;
}

}  // namespace backlight::tool
