// Of configurations: attention/validation.hpp.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "attention/family_support.hpp"
#include "attention/kernels.hpp"
#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"
#include "validation_test_support.hpp"

using namespace backlight;
using namespace backlight::test::validation;
using attention::validate;
using test::check_refused;

namespace {

struct BadField {
    const char* name;
    int TileConfig::*field;
    std::vector<int> bad;
    const char* rule;
};

/// With each bad value of each field, by its name, the value and the rule, and what else there is.
void refused_by_each(const TileConfig& good, const std::vector<BadField>& fields,
                     const std::string& also = "") {
    for (const BadField& field : fields) {
        for (const int bad : field.bad) {
            TileConfig config = good;
            config.*field.field = bad;
            refused(config, good_problem,
                    {std::string(field.name) + " is " + std::to_string(bad), field.rule, also});
        }
    }
}

}  // namespace

TEST_CASE("every preset of mma fits every head_dim and both targets") {
    for (const KernelPreset& preset : kernel_presets()) {
        if (preset.config.family != KernelFamily::mma) {
            continue;
        }
        for (const std::int64_t head_dim : {64, 128}) {
            AttentionProblem problem = good_problem;
            problem.head_dim = head_dim;
            CHECK_NOTHROW(validate(preset.config, problem, hopper()));
            CHECK_NOTHROW(validate(preset.config, problem, blackwell()));
        }
    }
}

TEST_CASE("wgmma fits every head_dim on Hopper and is refused by name anywhere else") {
    for (const std::int64_t head_dim : {64, 128}) {
        AttentionProblem problem = good_problem;
        problem.head_dim = head_dim;
        CHECK_NOTHROW(validate(kernel_preset("wgmma"), problem, hopper()));
        for (const char* name : {"sm_100a", "sm_120a"}) {
            check_refused(
                ErrorCode::unsupported, {"family is wgmma", "Hopper", "sm_90a", name},
                [&] { validate(kernel_preset("wgmma"), problem, device::target_by_name(name)); });
        }
    }
}

TEST_CASE("a wgmma configuration is refused by each of its rules, with field, value and rule") {
    constexpr int most = std::numeric_limits<int>::max();
    const std::vector<BadField> fields = {
        {"block_q", &TileConfig::block_q, {16, 32, 128}, "it must be 64 for wgmma"},
        {"block_kv", &TileConfig::block_kv, {32, 64, 256}, "it must be 128 for wgmma"},
        {"warps", &TileConfig::warps, {1, 8, 12, 32}, "it must be 16 for wgmma"},
        {"stages", &TileConfig::stages, {1}, "it must be 2 … 8 for wgmma"},
        {"stages", &TileConfig::stages, {0, 9, most}, "it must be 1 … 8"},
        {"heads_per_group", &TileConfig::heads_per_group, {0, -1, 1025, most}, "1 … 1024"},
    };
    refused_by_each(kernel_preset("wgmma"), fields, "family=wgmma");
    for (const int heads : {1, 3, 1024}) {
        TileConfig config = kernel_preset("wgmma");
        config.heads_per_group = heads;
        CHECK_NOTHROW(validate(config, good_problem, hopper()));
    }
    TileConfig no_family;
    no_family.family = static_cast<KernelFamily>(7);
    refused(no_family, good_problem, {"family is 7", "mma, wgmma or mma_resident"});
}

TEST_CASE("mma_resident fits every head_dim and target, and tall query tiles head_dim 64 alone") {
    TileConfig tall = kernel_preset("v4");
    tall.block_q = 64;
    for (const char* name : {"sm_90a", "sm_100a", "sm_120a"}) {
        const device::Target target = device::target_by_name(name);
        AttentionProblem problem = good_problem;
        problem.head_dim = 64;
        CHECK_NOTHROW(validate(kernel_preset("v4"), problem, target));
        CHECK_NOTHROW(validate(tall, problem, target));
        problem.head_dim = 128;
        CHECK_NOTHROW(validate(kernel_preset("v4"), problem, target));
        check_refused(ErrorCode::invalid_argument,
                      {"block_q is 64", "32 for mma_resident, or 64 at head dimensions up to 64"},
                      [&] { validate(tall, problem, target); });
    }
}

TEST_CASE("a configuration of mma_resident is refused by each of its rules") {
    const std::vector<BadField> fields = {
        {"block_q", &TileConfig::block_q, {16, 48, 128}, "it must be 32 for mma_resident"},
        {"block_kv", &TileConfig::block_kv, {32, 128}, "it must be 64 for mma_resident"},
        {"warps", &TileConfig::warps, {1, 2, 8}, "it must be 4 for mma_resident"},
        {"stages", &TileConfig::stages, {1, 3}, "it must be 2 for mma_resident"},
        {"heads_per_group", &TileConfig::heads_per_group, {0, 1025}, "1 … 1024"},
    };
    refused_by_each(kernel_preset("v4"), fields, "family=mma_resident");
}

TEST_CASE("lengths that tiles do not divide are taken by all but mma") {
    AttentionProblem problem = good_problem;
    problem.causal = false;
    problem.seqlen_q = 1;
    problem.seqlen_kv = 64;
    CHECK_NOTHROW(validate(kernel_preset("v4"), problem, blackwell()));
    check_refused(ErrorCode::unsupported, {"seqlen_q is 1", "multiple of block_q = 32"},
                  [&] { validate(kernel_preset("v3"), problem, blackwell()); });
    problem.seqlen_q = 32;
    problem.seqlen_kv = 96;
    CHECK_NOTHROW(validate(kernel_preset("v5"), problem, blackwell()));
    check_refused(ErrorCode::unsupported, {"seqlen_kv is 96", "multiple of block_kv = 64"},
                  [&] { validate(kernel_preset("v3"), problem, blackwell()); });
}

TEST_CASE("what wgmma cannot count in 32 bits is refused, and the heuristic takes mma_resident") {
    const auto refused_length = [](const TileConfig& config, const AttentionProblem& problem,
                                   std::initializer_list<std::string_view> fragments) {
        check_refused(ErrorCode::unsupported, fragments,
                      [&] { validate(config, problem, hopper()); });
    };
    AttentionProblem lengthy = good_problem;
    lengthy.batch = lengthy.heads = 1;
    lengthy.seqlen_q = lengthy.seqlen_kv = std::int64_t{1} << 21;
    CHECK_NOTHROW(validate(kernel_preset("wgmma"), lengthy, hopper()));
    lengthy.seqlen_q = lengthy.seqlen_kv = std::int64_t{1} << 22;
    refused_length(kernel_preset("wgmma"), lengthy, {"65536 · 32768", "2147483647"});
    CHECK(tuning::heuristic(lengthy, hopper()).family == KernelFamily::mma_resident);
    refused_length(kernel_preset("v5"), lengthy, {"131072 · 65536", "for mma_resident"});

    AttentionProblem wide = lengthy;
    wide.causal = false;
    wide.seqlen_q = 64;
    wide.seqlen_kv = std::int64_t{1} << 29;
    CHECK_NOTHROW(validate(kernel_preset("wgmma"), wide, hopper()));
    TileConfig many_heads = kernel_preset("wgmma");
    many_heads.heads_per_group = 1024;
    refused_length(many_heads, wide, {"1 · 1 · 4194304", "tickets", "2147483515"});
}

TEST_CASE("wgmma counts the tickets too by which its blocks learn that there are no more") {
    AttentionProblem problem = good_problem;
    problem.batch = problem.heads = 1;
    problem.causal = false;
    problem.seqlen_q = 64;
    TileConfig config = kernel_preset("wgmma");
    // Three rounds of as many tickets: the key tiles of one group, and two until it is converted.
    config.heads_per_group = 1023;
    constexpr std::int64_t kv_tiles = 699734;
    problem.seqlen_kv = 128 * kv_tiles;
    REQUIRE(attention::Rounds(problem, config).tickets() == 2147483646);
    check_refused(ErrorCode::unsupported, {"2147483646 tickets", "at most 2147483515"},
                  [&] { validate(config, problem, hopper()); });
    problem.seqlen_kv -= 128;
    CHECK_NOTHROW(validate(config, problem, hopper()));
}

TEST_CASE("wgmma's fields are refused for mma") {
    TileConfig config = kernel_preset("v3");
    config.heads_per_group = 2;
    refused(config, good_problem, {"heads_per_group is 2", "it must be 1 for mma"});
}

TEST_CASE("a configuration's fields are refused outside their ranges, by name, value and rule") {
    constexpr int most = std::numeric_limits<int>::max();
    constexpr int least = std::numeric_limits<int>::min();
    const std::vector<BadField> fields = {
        {"block_q", &TileConfig::block_q, {0, -16, 8, 24, 272, most, least}, "multiple of 16"},
        {"block_kv", &TileConfig::block_kv, {0, -32, 16, 48, 288, most, least}, "multiple of 32"},
        {"stages", &TileConfig::stages, {0, -1, 9, most, least}, "1 … 8"},
        {"warps", &TileConfig::warps, {0, -8, 33, most, least}, "1 … 32"},
    };
    refused_by_each({}, fields);
}

TEST_CASE("warps that the row groups cannot share evenly are refused with the reason") {
    refused({.block_q = 64, .block_kv = 32, .warps = 6}, good_problem,
            {"warps is 6", "block_q / 16 = 4"});
    refused({.block_q = 32, .block_kv = 64, .warps = 6}, good_problem,
            {"warps is 6", "block_kv / 16 = 4"});
    refused({.block_q = 128, .block_kv = 64, .warps = 4}, good_problem,
            {"warps is 4", "block_q / 16 = 8"});
}

TEST_CASE("warps whose spans of columns are no whole fragments or panels are refused") {
    // 64 columns of S in 8 parts: 8 each.
    refused({.block_q = 16, .block_kv = 64, .warps = 8}, good_problem,
            {"warps is 8", "64 columns of S", "8 parts"});
    // 128 columns of dK in 16 parts: 8 each.
    AttentionProblem shallow = good_problem;
    shallow.head_dim = 64;
    refused({.block_q = 64, .block_kv = 32, .warps = 16}, shallow, {"warps is 16", "columns of"});
}

TEST_CASE("a sequence length that is no multiple of the tile is unsupported, with both numbers") {
    AttentionProblem problem = good_problem;
    problem.causal = false;
    problem.seqlen_q = 100;
    check_refused(ErrorCode::unsupported, {"seqlen_q is 100", "multiple of block_q = 64"},
                  [&] { validate(kernel_preset("v2"), problem, hopper()); });
    problem.seqlen_q = 96;  // a multiple of 32
    CHECK_NOTHROW(validate(kernel_preset("v3"), problem, hopper()));
    problem.seqlen_kv = 96;
    check_refused(ErrorCode::unsupported, {"seqlen_kv is 96", "multiple of block_kv = 64"},
                  [&] { validate(kernel_preset("v3"), problem, hopper()); });
    problem.seqlen_q = problem.seqlen_kv = 1;
    check_refused(ErrorCode::unsupported, {"seqlen_q is 1:", "multiple of block_q = 32"},
                  [&] { validate(kernel_preset("v3"), problem, hopper()); });
}

TEST_CASE("shared memory above the target's limit is refused there and accepted where it fits") {
    TileConfig config = kernel_preset("v2");
    config.stages = 2;
    REQUIRE(shared_memory_bytes(config, 128) == 114704);
    check_refused(ErrorCode::shared_memory_exceeded,
                  {"stages=2", "114704 bytes", "head_dim 128", "sm_120a", "101376"},
                  [&] { validate(config, good_problem, blackwell()); });
    CHECK_NOTHROW(validate(config, good_problem, hopper()));
    AttentionProblem shallow = good_problem;
    shallow.head_dim = 64;
    CHECK_NOTHROW(validate(config, shallow, blackwell()));
}

TEST_CASE("stages of wgmma beyond the shared memory of a block are refused with both numbers") {
    TileConfig config = kernel_preset("wgmma");
    config.stages = 4;
    check_refused(ErrorCode::shared_memory_exceeded,
                  {"family=wgmma", "stages=4",
                   std::to_string(shared_memory_bytes(config, 128)) + " bytes", "sm_90a", "232448"},
                  [&] { validate(config, good_problem, hopper()); });
    AttentionProblem shallow = good_problem;
    shallow.head_dim = 64;
    config.stages = 3;
    CHECK_NOTHROW(validate(config, shallow, hopper()));
}

TEST_CASE("what no family takes is told before a family is chosen") {
    AttentionProblem problem = good_problem;
    problem.heads_kv = 2;
    CHECK_NOTHROW(attention::require_any_family(good_problem, kernel_families()));
    check_refused(ErrorCode::unsupported, {"heads_kv is 2", "for mma"},
                  [&] { tuning::legal_tiles(problem, hopper(), KernelFamily::mma); });
}

TEST_CASE("the chain is made of validated parts only") {
    AttentionProblem problem = good_problem;
    problem.head_dim = 96;
    check_refused(ErrorCode::unsupported, {"head_dim is 96"},
                  [&] { attention::backward_chain(problem, kernel_preset("v3"), hopper()); });
    CHECK_NOTHROW(attention::backward_chain(good_problem, kernel_preset("v3"), hopper()));
}
