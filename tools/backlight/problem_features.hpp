#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backlight/problem.hpp"

namespace backlight::tool {

/// What a command line may say of its problems besides shape, causal mask and type.
struct ProblemFeatures {
    /// Where no shape tells them.
    std::optional<std::int64_t> heads;
    std::optional<std::int64_t> heads_kv;
    std::optional<std::int64_t> head_dim_v;
    std::optional<std::int64_t> seqlen_kv;
    MaskAlignment mask_alignment = MaskAlignment::bottom_right;
    std::optional<std::int64_t> window_left;
    std::optional<std::int64_t> window_right;
    GradientType gradient_type = GradientType::input;
    bool accumulate_gradients = false;
    bool deterministic = false;
    /// The batch's sequences lie packed, all of the shape's length.
    bool packed = false;

    bool operator==(const ProblemFeatures&) const = default;

    AttentionProblem applied_to(AttentionProblem problem) const;
    /// " --heads-kv 2 --window 1024,0 …": the options that say the same; empty where nothing is
    /// said.
    std::string command_line() const;
};

/// The totals where all of the batch's sequences have the problem's lengths.
PackedSequences packed_of_equal_lengths(const AttentionProblem& problem);

/// The problem with so many queries a sequence, and as many keys where it does not tell them;
/// totals of packed sequences follow.
AttentionProblem with_seqlen(AttentionProblem problem, std::int64_t seqlen);

/// "B=8 H=16 N=4096 d=128 bf16 causal": a problem in tables. Numbers of keys and values follow
/// those of queries, "H=16/2 N=4096/8192 d=192/128", where they differ.
std::string short_text(const AttentionProblem& problem);

/// "128", or "192/128" where values have another.
std::string head_dims_text(const AttentionProblem& problem);

/// "d=192/128 bf16 causal grouped heads fp32 gradients": what its kernels are specialised for.
std::string kernel_text(const AttentionProblem& problem);

/// "causal grouped heads fp32 gradients": the mask, and what kernels do besides that is not usual.
std::string feature_text(const AttentionProblem& problem);

/// "top-left" or "bottom-right", also with an underscore, as JSON has it. Throws `invalid_argument`
/// with the text and the rule, as the others do.
MaskAlignment parse_mask_alignment(std::string_view text);

/// "input" or "fp32".
GradientType parse_gradient_type(std::string_view text);

/// The options of a subcommand, for ProblemFeatures.
class FeatureArguments {
  public:
    /// --mask, --window, --gradient-type, --accumulate and --deterministic.
    void add_to(CLI::App& command);
    /// --heads-kv, --head-dim-v and --packed too, where no file tells them.
    void add_heads_to(CLI::App& command);
    /// --heads, where nothing else tells how many there are.
    void add_query_heads_to(CLI::App& command);
    /// --seqlen-kv, where shapes have one length.
    void add_seqlen_kv_to(CLI::App& command);

    ProblemFeatures resolve() const;

  private:
    ProblemFeatures features_;
    std::string mask_;
    std::string window_;
    std::string gradient_type_;
};

}  // namespace backlight::tool
