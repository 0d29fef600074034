#include "attention/validation.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "validation_test_support.hpp"

using namespace backlight;
using namespace backlight::test::validation;
using attention::validate;

TEST_CASE("extents below 1 or above 2^30 are refused by name, value and rule") {
    struct Extent {
        const char* name;
        std::int64_t AttentionProblem::*field;
    };
    for (const Extent& extent : {Extent{"batch", &AttentionProblem::batch},
                                 {"heads", &AttentionProblem::heads},
                                 {"seqlen_q", &AttentionProblem::seqlen_q},
                                 {"seqlen_kv", &AttentionProblem::seqlen_kv}}) {
        const bool length = std::string_view(extent.name).starts_with("seqlen");
        for (const std::int64_t bad :
             {std::int64_t{0}, std::int64_t{-1}, (std::int64_t{1} << 30) + 1, std::int64_t{1} << 62,
              largest, -largest - 1}) {
            AttentionProblem problem = good_problem;
            problem.*extent.field = bad;
            if (length && bad == 0) {
                CHECK_NOTHROW(validate(problem));
                continue;
            }
            refused(ErrorCode::invalid_argument, problem,
                    {extent.name, "is " + std::to_string(bad) + ":",
                     length ? "0 … 1073741824" : "1 … 1073741824"});
        }
    }
}

TEST_CASE("heads of keys and values must divide those of queries") {
    AttentionProblem problem = good_problem;
    for (const std::int64_t good : {1, 2, 4}) {
        problem.heads_kv = good;
        CHECK_NOTHROW(validate(problem));
    }
    for (const std::int64_t bad : {3, 8}) {
        problem.heads_kv = bad;
        refused(ErrorCode::invalid_argument, problem,
                {"heads_kv is " + std::to_string(bad), "divide heads = 4"});
    }
    for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-4}, largest}) {
        problem.heads_kv = bad;
        refused(ErrorCode::invalid_argument, problem,
                {"heads_kv is " + std::to_string(bad), "1 … 1073741824"});
    }
}

TEST_CASE("a head dimension is a multiple of 8 up to 256 for keys and for values") {
    for (const std::int64_t good : {8, 72, 104, 192, 256}) {
        AttentionProblem problem = good_problem;
        problem.head_dim = good;
        problem.head_dim_v = 264 - good;
        CHECK_NOTHROW(validate(problem));
    }
    for (const std::int64_t bad :
         {std::int64_t{0}, std::int64_t{-8}, std::int64_t{1}, std::int64_t{4}, std::int64_t{12},
          std::int64_t{100}, std::int64_t{264}, std::int64_t{512}, largest, -largest - 1}) {
        AttentionProblem problem = good_problem;
        problem.head_dim = bad;
        const std::string rule = std::to_string(bad) + ": it must be a multiple of 8 from 8 to 256";
        refused(ErrorCode::unsupported, problem, {"head_dim is " + rule});
        problem.head_dim = 64;
        problem.head_dim_v = bad;
        refused(ErrorCode::unsupported, problem, {"head_dim_v is " + rule});
    }
}

TEST_CASE("a window's bounds are 0 or more or left out") {
    for (const std::int64_t good : {std::int64_t{0}, std::int64_t{1}, largest}) {
        AttentionProblem problem = good_problem;
        problem.window_left = problem.window_right = good;
        CHECK_NOTHROW(validate(problem));
    }
    AttentionProblem problem = good_problem;
    problem.window_left = -1;
    refused(ErrorCode::invalid_argument, problem, {"window_left is -1", "0 or more", "left out"});
    problem.window_left = std::nullopt;
    problem.window_right = -largest - 1;
    refused(ErrorCode::invalid_argument, problem, {"window_right is -9223372036854775808"});
}

TEST_CASE("a mask alignment or a gradient type that is none is refused with its number") {
    AttentionProblem problem = good_problem;
    problem.mask_alignment = static_cast<MaskAlignment>(5);
    refused(ErrorCode::invalid_argument, problem,
            {"mask_alignment is 5", "top_left or bottom_right"});
    problem.mask_alignment = MaskAlignment::top_left;
    CHECK_NOTHROW(validate(problem));
    problem.gradient_type = static_cast<GradientType>(5);
    refused(ErrorCode::invalid_argument, problem, {"gradient_type is 5", "input or fp32"});
}

TEST_CASE("extents that are each allowed are refused where their product passes the grid's limit") {
    AttentionProblem problem = good_problem;
    problem.batch = problem.heads = 1 << 30;
    refused(ErrorCode::invalid_argument, problem, {"batch · heads", "1152921504606846976", "2^31"});
    // 2^31 blocks of 64 rows: one too many.
    problem = good_problem;
    problem.batch = 1 << 15;
    problem.heads = 1 << 14;
    refused(ErrorCode::invalid_argument, problem, {"batch · heads", "delta", "2^31 - 1"});
    problem.heads = (1 << 14) - 1;
    CHECK_NOTHROW(validate(problem));
}

TEST_CASE("a grid of the main kernel above 2^31 - 1 blocks is refused") {
    // Few queries and many keys: the delta kernel's grid is small, the main kernel's is not.
    AttentionProblem problem = good_problem;
    problem.causal = false;
    problem.batch = 1024;
    problem.heads = 1024;
    problem.seqlen_q = 64;
    problem.seqlen_kv = std::int64_t{1} << 20;
    CHECK_NOTHROW(validate(problem));
    refused(kernel_preset("v3"), problem, {"batch · heads", "main", "2^31 - 1"});
}

TEST_CASE("a softmax scale is a number of magnitude up to 1e38, also zero and negative") {
    struct Refused {
        float scale;
        std::string_view text;
    };
    constexpr float infinite = std::numeric_limits<float>::infinity();
    for (const auto& [bad, text] :
         {Refused{std::numeric_limits<float>::quiet_NaN(), "softmax_scale is nan:"},
          {infinite, "softmax_scale is inf:"},
          {-infinite, "softmax_scale is -inf:"},
          {2e38F, "softmax_scale is 2e+38:"},
          {-2e38F, "softmax_scale is -2e+38:"}}) {
        AttentionProblem problem = good_problem;
        problem.softmax_scale = bad;
        refused(ErrorCode::invalid_argument, problem, {text, "it must be from -1e38 to 1e38"});
    }
    for (const float good : {0.0F, -1.0F, 1e-30F, 1e38F, -1e38F}) {
        AttentionProblem problem = good_problem;
        problem.softmax_scale = good;
        CHECK_NOTHROW(validate(problem));
    }
}
