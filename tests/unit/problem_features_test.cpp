#include "problem_features.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "test_support.hpp"

using namespace backlight;
using test::check_refused;
using tool::FeatureArguments;
using tool::ProblemFeatures;

namespace {

ProblemFeatures parsed(std::vector<std::string> arguments) {
    CLI::App app;
    FeatureArguments features;
    features.add_to(app);
    features.add_query_heads_to(app);
    features.add_heads_to(app);
    features.add_seqlen_kv_to(app);
    std::ranges::reverse(arguments);  // as CLI11 takes them
    app.parse(arguments);
    return features.resolve();
}

const AttentionProblem sample{
    .batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .head_dim = 128, .causal = true};

}  // namespace

TEST_CASE("without options a problem stays as it is") {
    CHECK(parsed({}) == ProblemFeatures{});
    CHECK(parsed({}).applied_to(sample) == sample);
    CHECK(parsed({}).command_line().empty());
}

TEST_CASE("each option sets its field of the problem and is told again as it was given") {
    const ProblemFeatures features =
        parsed({"--heads", "4", "--heads-kv", "2", "--head-dim-v", "64", "--seqlen-kv", "8192",
                "--mask", "top-left", "--window", "1024,all", "--gradient-type", "fp32",
                "--accumulate", "--deterministic"});
    AttentionProblem expected = sample;
    expected.heads = 4;
    expected.heads_kv = 2;
    expected.head_dim_v = 64;
    expected.seqlen_kv = 8192;
    expected.mask_alignment = MaskAlignment::top_left;
    expected.window_left = 1024;
    expected.gradient_type = GradientType::fp32;
    expected.accumulate_gradients = true;
    expected.deterministic = true;
    CHECK(features.applied_to(sample) == expected);
    CHECK(features.command_line() ==
          " --heads 4 --heads-kv 2 --head-dim-v 64 --seqlen-kv 8192 --mask top-left "
          "--window 1024,all --gradient-type fp32 --accumulate --deterministic");
    const ProblemFeatures right = parsed({"--window", "all,0", "--mask", "bottom_right"});
    CHECK_FALSE(right.window_left);
    CHECK(right.window_right == 0);
    CHECK(right.command_line() == " --window all,0");
}

TEST_CASE("a window or mask or gradient type that is none is refused by option and rule") {
    for (const char* window : {"1024", "1024,", ",0", "-1,0", "1,2,3", "1k,0", "ALL,0"}) {
        CAPTURE(window);
        check_refused(ErrorCode::invalid_argument, {"window is '" + std::string(window), "1024,0"},
                      [&] { parsed({"--window=" + std::string(window)}); });
    }
    check_refused(ErrorCode::invalid_argument, {"mask is 'left'", "top-left or bottom-right"}, [] {
        parsed({"--mask", "left"});
    });
    check_refused(ErrorCode::invalid_argument, {"gradient-type is 'fp16'", "input or fp32"}, [] {
        parsed({"--gradient-type", "fp16"});
    });
}

TEST_CASE("a problem's short text tells numbers of keys and values where they differ") {
    CHECK(tool::short_text(sample) == "B=8 H=16 N=4096 d=128 bf16 causal");
    AttentionProblem problem = sample;
    problem.heads_kv = 2;
    problem.seqlen_kv = 8192;
    problem.head_dim = 192;
    problem.head_dim_v = 128;
    problem.gradient_type = GradientType::fp32;
    problem.accumulate_gradients = true;
    problem.deterministic = true;
    CHECK(tool::short_text(problem) ==
          "B=8 H=16/2 N=4096/8192 d=192/128 bf16 causal bottom_right fp32 gradients accumulated "
          "deterministic");
    CHECK(tool::kernel_text(problem) ==
          "d=192/128 bf16 causal bottom_right grouped heads fp32 gradients accumulated "
          "deterministic");
}
