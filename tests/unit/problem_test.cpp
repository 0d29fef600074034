#include "backlight/problem.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

using backlight::AttentionProblem;
using backlight::AttentionProblemHash;
using backlight::DataType;
using backlight::GradientType;
using backlight::MaskAlignment;

namespace {

const AttentionProblem sample{
    .batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 2048, .head_dim = 128};

}  // namespace

TEST_CASE("the softmax scale is one over the root of head_dim unless given") {
    AttentionProblem problem = sample;
    CHECK(problem.effective_softmax_scale() == doctest::Approx(0.08838834764));
    problem.head_dim = 64;
    CHECK(problem.effective_softmax_scale() == 0.125F);
    problem.softmax_scale = 0.3F;
    CHECK(problem.effective_softmax_scale() == 0.3F);
    // Zero and negative values are the caller's to choose.
    problem.softmax_scale = 0.0F;
    CHECK(problem.effective_softmax_scale() == 0.0F);
    problem.softmax_scale = -1.0F;
    CHECK(problem.effective_softmax_scale() == -1.0F);
}

TEST_CASE("the backward counts ten operations a score element and head dimension, half if causal") {
    AttentionProblem problem = sample;
    problem.seqlen_kv = 4096;
    const double full = 10.0 * 8 * 16 * 4096.0 * 4096.0 * 128;
    CHECK(backward_flops(problem) == full);
    problem.causal = true;
    CHECK(backward_flops(problem) == full / 2);
}

TEST_CASE("attended pairs are counted one by one under any mask but the plain causal one") {
    for (const auto& [seqlen_q, seqlen_kv] :
         {std::pair{8, 8}, std::pair{5, 9}, std::pair{9, 5}, std::pair{1, 7}, std::pair{7, 1}}) {
        for (const MaskAlignment alignment :
             {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
            for (int left = -1; left < 11; ++left) {
                for (int right = -1; right < 11; ++right) {
                    AttentionProblem problem{.seqlen_q = seqlen_q,
                                             .seqlen_kv = seqlen_kv,
                                             .head_dim = 64,
                                             .mask_alignment = alignment};
                    if (left >= 0) {
                        problem.window_left = left;
                    }
                    if (right >= 0) {
                        problem.window_right = right;
                    }
                    const int shift =
                        alignment == MaskAlignment::bottom_right ? seqlen_kv - seqlen_q : 0;
                    int pairs = 0;
                    for (int i = 0; i < seqlen_q; ++i) {
                        for (int j = 0; j < seqlen_kv; ++j) {
                            pairs += (left < 0 || j >= i + shift - left) &&
                                     (right < 0 || j <= i + shift + right);
                        }
                    }
                    const bool plain_causal =
                        seqlen_q == seqlen_kv && right == 0 && (left < 0 || left >= seqlen_q - 1);
                    CAPTURE(to_string(problem));
                    CHECK(attended_pairs(problem) == (plain_causal ? 32 : pairs));
                    if (right == 0) {
                        problem.window_right = std::nullopt;
                        problem.causal = true;
                        CHECK(attended_pairs(problem) == (plain_causal ? 32 : pairs));
                    }
                }
            }
        }
    }
}

TEST_CASE("a window as wide as 64 bits hold masks nothing") {
    AttentionProblem problem = sample;
    problem.window_left = problem.window_right = INT64_MAX;
    for (const MaskAlignment alignment : {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
        problem.mask_alignment = alignment;
        CHECK(attended_pairs(problem) == 4096.0 * 2048);
    }
    problem.seqlen_q = problem.seqlen_kv = std::int64_t{1} << 30;
    problem.window_left = 1023;
    problem.window_right = 0;
    CHECK(attended_pairs(problem) == 1024.0 * (1 << 30) - 1023 * 512);
}

TEST_CASE("operations count heads of queries and each head dimension in its own products") {
    AttentionProblem problem = sample;
    problem.heads_kv = 2;
    problem.head_dim_v = 64;
    CHECK(backward_flops(problem) == 8.0 * 16 * 4096 * 2048 * (6 * 128 + 4 * 64));
    const double q = 8.0 * 16 * 4096 * 128;
    const double o = 8.0 * 16 * 4096 * 64;
    const double k = 8.0 * 2 * 2048 * 128;
    const double v = 8.0 * 2 * 2048 * 64;
    const double lse = 8.0 * 16 * 4096;
    CHECK(backward_bytes(problem) == 2 * (2 * q + 2 * o + 2 * k + 2 * v) + 4 * lse);
    problem.gradient_type = GradientType::fp32;
    CHECK(backward_bytes(problem) == 2 * (q + 2 * o + k + v) + 4 * (q + k + v) + 4 * lse);
}

TEST_CASE("the mask's text tells its kind, its bounds and where lengths differ its alignment") {
    AttentionProblem problem = sample;
    CHECK(mask_text(problem) == "full");
    problem.causal = true;
    CHECK(mask_text(problem) == "causal bottom_right");
    problem.seqlen_kv = problem.seqlen_q;
    CHECK(mask_text(problem) == "causal");
    problem.window_left = 1024;
    CHECK(mask_text(problem) == "causal window 1024,all");
    problem.causal = false;
    problem.window_right = 0;
    problem.seqlen_kv = 1;
    problem.mask_alignment = MaskAlignment::top_left;
    CHECK(mask_text(problem) == "window 1024,0 top_left");
}

TEST_CASE("the backward's fewest bytes are each tensor once and the row sums once") {
    const double q = 8.0 * 16 * 4096 * 128 * 2;
    const double kv = 8.0 * 16 * 2048 * 128 * 2;
    const double lse = 8.0 * 16 * 4096 * 4;
    CHECK(backward_bytes(sample) == 4 * q + 4 * kv + lse);
    AttentionProblem added = sample;
    added.gradient_type = GradientType::fp32;
    CHECK(backward_bytes(added) == 5 * q + 6 * kv + lse);
    added.accumulate_gradients = true;  // The gradients are read as well.
    CHECK(backward_bytes(added) == 7 * q + 10 * kv + lse);
}

TEST_CASE("operations of extents at the top of 64 bits stay finite and positive") {
    AttentionProblem huge = sample;
    huge.batch = huge.heads = huge.seqlen_q = huge.seqlen_kv = INT64_MAX;
    CHECK(backward_flops(huge) > 1e70);
    CHECK(backward_bytes(huge) > 1e50);
}

TEST_CASE("problems that differ in any one field are unequal, have another hash and another text") {
    std::vector<AttentionProblem> problems(23, sample);
    problems[1].batch = 9;
    problems[2].heads = 17;
    problems[3].seqlen_q = 4097;
    problems[4].seqlen_kv = 2049;
    problems[5].head_dim = 64;
    problems[6].causal = true;
    problems[7].dtype = DataType::fp16;
    problems[8].softmax_scale = 0.0F;
    problems[9].softmax_scale = 0.5F;
    problems[10].softmax_scale = 1.0F;
    problems[11].heads_kv = 16;  // what is in force is equal, what is given is not
    problems[12].heads_kv = 4;
    problems[13].head_dim_v = 128;
    problems[14].head_dim_v = 64;
    problems[15].mask_alignment = MaskAlignment::top_left;
    problems[16].window_left = 0;
    problems[17].window_left = 1024;
    problems[18].window_right = 0;
    problems[19].window_right = 1024;
    problems[20].gradient_type = GradientType::fp32;
    problems[21].deterministic = true;
    problems[22].accumulate_gradients = true;
    std::set<std::size_t> hashes;
    std::set<std::string> texts;
    for (std::size_t i = 0; i < problems.size(); ++i) {
        hashes.insert(AttentionProblemHash{}(problems[i]));
        texts.insert(to_string(problems[i]));
        for (std::size_t j = 0; j < problems.size(); ++j) {
            CHECK((problems[i] == problems[j]) == (i == j));
        }
    }
    CHECK(hashes.size() == problems.size());
    CHECK(texts.size() == problems.size());
}

TEST_CASE("equal problems have equal hashes, whatever lies in their padding") {
    alignas(AttentionProblem) unsigned char zeros[sizeof(AttentionProblem)];
    alignas(AttentionProblem) unsigned char ones[sizeof(AttentionProblem)];
    for (std::size_t i = 0; i < sizeof(AttentionProblem); ++i) {
        zeros[i] = 0;
        ones[i] = 0xff;
    }
    const auto* a = new (zeros) AttentionProblem(sample);
    const auto* b = new (ones) AttentionProblem(sample);
    CHECK(AttentionProblemHash{}(*a) == AttentionProblemHash{}(*b));
}

TEST_CASE("the text of a problem names every field with its value") {
    CHECK(to_string(sample) ==
          "batch=8 heads=16 seqlen_q=4096 seqlen_kv=2048 head_dim=128 causal=false dtype=bf16 "
          "softmax_scale=default");
    CHECK(to_string(AttentionProblem{.batch = 8,
                                     .heads = 16,
                                     .heads_kv = 4,
                                     .seqlen_q = 4096,
                                     .seqlen_kv = 2048,
                                     .head_dim = 128,
                                     .head_dim_v = 64,
                                     .mask_alignment = MaskAlignment::top_left,
                                     .window_left = 1024,
                                     .window_right = 0,
                                     .gradient_type = GradientType::fp32,
                                     .accumulate_gradients = true,
                                     .deterministic = true}) ==
          "batch=8 heads=16 heads_kv=4 seqlen_q=4096 seqlen_kv=2048 head_dim=128 head_dim_v=64 "
          "causal=false mask_alignment=top_left window_left=1024 window_right=0 dtype=bf16 "
          "gradient_type=fp32 accumulate_gradients=true softmax_scale=default "
          "deterministic=true");
}
