#include "backlight/problem.hpp"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

using backlight::AttentionProblem;
using backlight::AttentionProblemHash;
using backlight::DataType;

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

TEST_CASE("the backward's fewest bytes are each tensor once and the row sums once") {
    const double q = 8.0 * 16 * 4096 * 128 * 2;
    const double kv = 8.0 * 16 * 2048 * 128 * 2;
    const double lse = 8.0 * 16 * 4096 * 4;
    CHECK(backward_bytes(sample) == 4 * q + 4 * kv + lse);
}

TEST_CASE("operations of extents at the top of 64 bits stay finite and positive") {
    AttentionProblem huge = sample;
    huge.batch = huge.heads = huge.seqlen_q = huge.seqlen_kv = INT64_MAX;
    CHECK(backward_flops(huge) > 1e70);
    CHECK(backward_bytes(huge) > 1e50);
}

TEST_CASE("problems that differ in any one field are unequal, have another hash and another text") {
    std::vector<AttentionProblem> problems(11, sample);
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
}
