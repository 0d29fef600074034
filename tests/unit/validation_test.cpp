#include "attention/validation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/family_support.hpp"
#include "attention/fitted_config.hpp"
#include "attention/kernels.hpp"
#include "attention/zero_gradients.hpp"
#include "device/cuda_device.hpp"
#include "test_support.hpp"
#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"

using namespace backlight;
using attention::validate;
using test::check_refused;
using test::tensors_at;

namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();

const AttentionProblem good_problem{
    .batch = 2, .heads = 4, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 128, .causal = true};

const device::Target& hopper() {
    static const device::Target target = device::target_by_name("sm_90a");
    return target;
}

const device::Target& blackwell() {
    static const device::Target target = device::target_by_name("sm_120a");
    return target;
}

void refused(ErrorCode code, const AttentionProblem& problem,
             std::initializer_list<std::string_view> fragments) {
    check_refused(code, fragments, [&] { validate(problem); });
}

void refused(const TileConfig& config, const AttentionProblem& problem,
             std::initializer_list<std::string_view> fragments) {
    check_refused(ErrorCode::invalid_argument, fragments,
                  [&] { validate(config, problem, hopper()); });
}

void refused(const BackwardTensors& tensors, const AttentionProblem& problem,
             std::initializer_list<std::string_view> fragments) {
    check_refused(ErrorCode::invalid_argument, fragments, [&] { validate(tensors, problem); });
}

BackwardTensors good_tensors(const AttentionProblem& problem = good_problem) {
    return tensors_at(problem, test::tensor_base);
}

}  // namespace

// --- Problems -----------------------------------------------------------------------------------

TEST_CASE("extents below 1 or above 2^30 are refused by name, value and rule") {
    struct Extent {
        const char* name;
        std::int64_t AttentionProblem::*field;
    };
    for (const Extent& extent : {Extent{"batch", &AttentionProblem::batch},
                                 {"heads", &AttentionProblem::heads},
                                 {"seqlen_q", &AttentionProblem::seqlen_q},
                                 {"seqlen_kv", &AttentionProblem::seqlen_kv},
                                 {"head_dim", &AttentionProblem::head_dim}}) {
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
    for (const std::int64_t bad : {1, 4, 12, 100, 264, 512}) {
        AttentionProblem problem = good_problem;
        problem.head_dim = bad;
        const std::string value = std::to_string(bad);
        refused(ErrorCode::unsupported, problem, {"head_dim is " + value, "multiple of 8", "256"});
        problem.head_dim = 64;
        problem.head_dim_v = bad;
        refused(ErrorCode::unsupported, problem,
                {"head_dim_v is " + value, "multiple of 8", "256"});
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

TEST_CASE("a softmax scale that is not finite is refused, while zero and negative ones are not") {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
        AttentionProblem problem = good_problem;
        problem.softmax_scale = bad;
        refused(ErrorCode::invalid_argument, problem, {"softmax_scale is", "finite"});
    }
    for (const float good : {0.0F, -1.0F, 1e-30F}) {
        AttentionProblem problem = good_problem;
        problem.softmax_scale = good;
        CHECK_NOTHROW(validate(problem));
    }
}

// --- What families take -------------------------------------------------------------------------

namespace {

/// Every preset refuses the problem as unsupported, with its family; so does a choice among them.
/// But for those families that take it.
void unsupported_but_by(std::span<const KernelFamily> takers, const AttentionProblem& problem,
                        std::initializer_list<std::string_view> fragments) {
    CHECK_NOTHROW(validate(problem));
    CHECK(tuning::is_legal(tuning::heuristic(problem, hopper()), problem, hopper()));
    CHECK_NOTHROW(attention::require_any_family(problem, kernel_families()));
    const auto takes = [&](KernelFamily family) { return std::ranges::count(takers, family) > 0; };
    for (const KernelPreset& preset : kernel_presets()) {
        CAPTURE(preset.name);
        if (takes(preset.config.family)) {
            CHECK_NOTHROW(validate(preset.config, problem, hopper()));
            continue;
        }
        check_refused(ErrorCode::unsupported, fragments,
                      [&] { validate(preset.config, problem, hopper()); });
        check_refused(ErrorCode::unsupported,
                      {"for " + std::string(to_string(preset.config.family))},
                      [&] { validate(preset.config, problem, hopper()); });
        CHECK_FALSE(tuning::is_legal(preset.config, problem, hopper()));
    }
    std::vector<KernelFamily> others;
    std::ranges::copy_if(kernel_families(), std::back_inserter(others),
                         [&](KernelFamily family) { return !takes(family); });
    check_refused(ErrorCode::unsupported, fragments,
                  [&] { attention::require_any_family(problem, others); });
    check_refused(ErrorCode::unsupported, {"for mma"},
                  [&] { attention::require_any_family(problem, others); });
}

void taken_by_all_but_mma(const AttentionProblem& problem,
                          std::initializer_list<std::string_view> fragments) {
    static constexpr std::array takers = {KernelFamily::wgmma, KernelFamily::mma_resident};
    unsupported_but_by(takers, problem, fragments);
}
/// With the configuration that v4 becomes.
void taken_by_wide_resident_alone(const AttentionProblem& problem) {
    CHECK_NOTHROW(validate(problem));
    CHECK_NOTHROW(attention::require_any_family(problem, kernel_families()));
    for (const device::Target& target : {hopper(), blackwell()}) {
        for (const KernelPreset& preset : kernel_presets()) {
            const TileConfig config = attention::fitted_config(preset.config, problem, target);
            CHECK(tuning::is_legal(config, problem, target) == (preset.name == "v4"));
        }
        CHECK(tuning::is_legal(tuning::heuristic(problem, target), problem, target));
    }
    check_refused(ErrorCode::unsupported, {"head_dim", "for mma"},
                  [&] { validate(kernel_preset("v3"), problem, hopper()); });
}
}  // namespace

TEST_CASE("a head_dim without kernels is unsupported, with those that have some") {
    for (const std::int64_t head_dim : {8, 32, 96, 120}) {
        AttentionProblem problem = good_problem;
        problem.head_dim = head_dim;
        taken_by_all_but_mma(problem, {"head_dim is " + std::to_string(head_dim), "64 or 128"});
    }
    for (const std::int64_t head_dim : {136, 192, 256}) {
        for (const std::int64_t other : {8, 64, 128, 256}) {
            AttentionProblem problem = good_problem;
            problem.head_dim = head_dim;
            problem.head_dim_v = other;
            taken_by_wide_resident_alone(problem);
            std::swap(problem.head_dim, *problem.head_dim_v);
            taken_by_wide_resident_alone(problem);
            problem.deterministic = true;
            taken_by_wide_resident_alone(problem);
        }
    }
}

TEST_CASE("a configuration for wide heads is refused by each of its rules") {
    AttentionProblem problem = good_problem;
    problem.head_dim = 192;
    const TileConfig good = attention::fitted_config(kernel_preset("v4"), problem, blackwell());
    CHECK(good.warps == 8);
    CHECK(good.stages == 2);
    const auto refused_config = [&](const TileConfig& config, const char* fragment) {
        check_refused(ErrorCode::invalid_argument, {fragment, "head dimensions"},
                      [&] { validate(config, problem, blackwell()); });
    };
    refused_config(kernel_preset("v4"), "warps is 4: it must be 8");
    TileConfig config = good;
    config.stages = 3;
    refused_config(config, "stages is 3: it must be 1 or 2");
    config = good;
    config.block_q = 64;
    refused_config(config, "block_q is 64: it must be 32");
    config = good;
    config.converts_d_q = true;
    refused_config(config, "converts_d_q is 1: it must be 0");
    // The same, of a preset that is fitted.
    refused_config(attention::fitted_config(kernel_preset("v5"), problem, blackwell()),
                   "converts_d_q is 1: it must be 0");
    config = good;
    problem.head_dim = 256;
    check_refused(ErrorCode::shared_memory_exceeded, {"stages=2", "101376"},
                  [&] { validate(config, problem, blackwell()); });
    CHECK(attention::fitted_config(kernel_preset("v4"), problem, blackwell()).stages == 1);
    CHECK(attention::fitted_config(kernel_preset("v4"), problem, hopper()).stages == 2);
    // Others are left as they are.
    CHECK(attention::fitted_config(kernel_preset("v3"), problem, hopper()) == kernel_preset("v3"));
    problem.head_dim = 128;
    CHECK(attention::fitted_config(kernel_preset("v4"), problem, hopper()) == kernel_preset("v4"));
}

TEST_CASE("a causal mask over unequal lengths is taken by all but mma") {
    AttentionProblem problem = good_problem;
    problem.seqlen_kv = 512;
    taken_by_all_but_mma(problem, {"seqlen_q is 256", "seqlen_kv is 512", "causal", "equal"});
    problem.causal = false;
    CHECK_NOTHROW(validate(kernel_preset("v3"), problem, hopper()));
}

TEST_CASE("grouped heads and other head dimensions of values are taken by all but mma") {
    AttentionProblem problem = good_problem;
    problem.heads_kv = 4;
    problem.head_dim_v = 128;
    CHECK_NOTHROW(validate(kernel_preset("v3"), problem, hopper()));
    problem.heads_kv = 2;
    taken_by_all_but_mma(problem, {"heads_kv is 2", "heads = 4"});
    problem.heads_kv = std::nullopt;
    problem.head_dim_v = 64;
    taken_by_all_but_mma(problem, {"head_dim_v is 64", "head_dim = 128"});
}

TEST_CASE("a window is taken by all but mma unless it masks nothing") {
    AttentionProblem problem = good_problem;
    problem.window_right = 0;  // as causal
    problem.window_left = 255;
    CHECK_NOTHROW(validate(kernel_preset("v3"), problem, hopper()));
    problem.window_left = 254;
    taken_by_all_but_mma(problem, {"window_left is 254", "left out"});
    problem = good_problem;
    problem.causal = false;
    problem.window_right = 255;
    CHECK_NOTHROW(validate(kernel_preset("v3"), problem, hopper()));
    // The causal mask said otherwise: the kernels go by the other field.
    problem.window_right = 0;
    taken_by_all_but_mma(problem, {"window_right is 0", "left out"});
}

TEST_CASE("fp32 gradients and sums with them are taken by all but mma") {
    AttentionProblem problem = good_problem;
    problem.gradient_type = GradientType::fp32;
    taken_by_all_but_mma(problem, {"gradient_type is fp32", "it must be input"});
    problem.accumulate_gradients = true;
    taken_by_all_but_mma(problem, {"gradient_type is fp32", "it must be input"});
}

TEST_CASE("determinism is taken by all but mma") {
    AttentionProblem problem = good_problem;
    problem.deterministic = true;
    taken_by_all_but_mma(problem, {"deterministic is true", "it must be false"});
}

TEST_CASE("only fp32 gradients can be added to") {
    AttentionProblem problem = good_problem;
    problem.accumulate_gradients = true;
    refused(ErrorCode::invalid_argument, problem,
            {"accumulate_gradients is true", "gradient_type is input", "it must be fp32"});
    // Whatever a family takes: an empty problem has no kernels.
    problem.seqlen_kv = 0;
    refused(ErrorCode::invalid_argument, problem, {"accumulate_gradients is true"});
    problem.gradient_type = GradientType::fp32;
    CHECK_NOTHROW(attention::validate(problem));
}

TEST_CASE("a problem without scores asks nothing of a family and has no kernels") {
    AttentionProblem problem = good_problem;
    problem.seqlen_q = 0;
    problem.head_dim = 72;
    problem.heads_kv = 1;
    problem.deterministic = true;
    for (const KernelPreset& preset : kernel_presets()) {
        for (const device::Target* target : {&hopper(), &blackwell()}) {
            CHECK(attention::backward_chain(problem, preset.config, *target).empty());
        }
    }
    TileConfig config = kernel_preset("v3");
    config.stages = 0;
    refused(config, problem, {"stages is 0"});
}

TEST_CASE("a data type that is none is refused with its number") {
    AttentionProblem problem = good_problem;
    problem.dtype = static_cast<DataType>(7);
    refused(ErrorCode::invalid_argument, problem, {"dtype is 7", "bf16 or fp16"});
}

// --- Configurations -----------------------------------------------------------------------------

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
    struct Field {
        const char* name;
        int TileConfig::*field;
        std::vector<int> bad;
        const char* rule;
    };
    constexpr int most = std::numeric_limits<int>::max();
    const Field fields[] = {
        {"block_q", &TileConfig::block_q, {16, 32, 128}, "it must be 64 for wgmma"},
        {"block_kv", &TileConfig::block_kv, {32, 64, 256}, "it must be 128 for wgmma"},
        {"warps", &TileConfig::warps, {1, 8, 12, 32}, "it must be 16 for wgmma"},
        {"stages", &TileConfig::stages, {1}, "it must be 2 … 8 for wgmma"},
        {"stages", &TileConfig::stages, {0, 9, most}, "it must be 1 … 8"},
        {"heads_per_group", &TileConfig::heads_per_group, {0, -1, 1025, most}, "1 … 1024"},
    };
    for (const Field& field : fields) {
        for (const int bad : field.bad) {
            TileConfig config = kernel_preset("wgmma");
            config.*field.field = bad;
            refused(config, good_problem,
                    {std::string(field.name) + " is " + std::to_string(bad), field.rule,
                     "family=wgmma"});
        }
    }
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
    struct Field {
        const char* name;
        int TileConfig::*field;
        std::vector<int> bad;
        const char* rule;
    };
    const Field fields[] = {
        {"block_q", &TileConfig::block_q, {16, 48, 128}, "it must be 32 for mma_resident"},
        {"block_kv", &TileConfig::block_kv, {32, 128}, "it must be 64 for mma_resident"},
        {"warps", &TileConfig::warps, {1, 2, 8}, "it must be 4 for mma_resident"},
        {"stages", &TileConfig::stages, {1, 3}, "it must be 2 for mma_resident"},
        {"heads_per_group", &TileConfig::heads_per_group, {0, 1025}, "1 … 1024"},
    };
    for (const Field& field : fields) {
        for (const int bad : field.bad) {
            TileConfig config = kernel_preset("v4");
            config.*field.field = bad;
            refused(config, good_problem,
                    {std::string(field.name) + " is " + std::to_string(bad), field.rule,
                     "family=mma_resident"});
        }
    }
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
    struct Field {
        const char* name;
        int TileConfig::*field;
        std::vector<int> bad;
        const char* rule;
    };
    constexpr int most = std::numeric_limits<int>::max();
    constexpr int least = std::numeric_limits<int>::min();
    const Field fields[] = {
        {"block_q", &TileConfig::block_q, {0, -16, 8, 24, 272, most, least}, "multiple of 16"},
        {"block_kv", &TileConfig::block_kv, {0, -32, 16, 48, 288, most, least}, "multiple of 32"},
        {"stages", &TileConfig::stages, {0, -1, 9, most, least}, "1 … 8"},
        {"warps", &TileConfig::warps, {0, -8, 33, most, least}, "1 … 32"},
    };
    for (const Field& field : fields) {
        for (const int bad : field.bad) {
            TileConfig config;
            config.*field.field = bad;
            refused(config, good_problem,
                    {std::string(field.name) + " is " + std::to_string(bad), field.rule});
        }
    }
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

// --- Tensors ------------------------------------------------------------------------------------

namespace {

struct NamedInput {
    const char* name;
    ConstTensorView BackwardTensors::*view;
};
constexpr NamedInput inputs[] = {{"q", &BackwardTensors::q},
                                 {"k", &BackwardTensors::k},
                                 {"v", &BackwardTensors::v},
                                 {"o", &BackwardTensors::o},
                                 {"d_o", &BackwardTensors::d_o}};

struct NamedOutput {
    const char* name;
    TensorView BackwardTensors::*view;
};
constexpr NamedOutput outputs[] = {
    {"d_q", &BackwardTensors::d_q}, {"d_k", &BackwardTensors::d_k}, {"d_v", &BackwardTensors::d_v}};

/// Applies a change to each tensor in turn: the refusal must name that tensor.
template <typename Change>
void each_tensor_refused(Change&& change, std::initializer_list<std::string_view> fragments) {
    const auto check = [&](const std::string& name, const BackwardTensors& tensors) {
        check_refused(ErrorCode::invalid_argument, {name + "."},
                      [&] { validate(tensors, good_problem); });
        refused(tensors, good_problem, fragments);
    };
    for (const NamedInput& input : inputs) {
        BackwardTensors tensors = good_tensors();
        change(tensors.*input.view);
        check(input.name, tensors);
    }
    for (const NamedOutput& output : outputs) {
        BackwardTensors tensors = good_tensors();
        change(tensors.*output.view);
        check(output.name, tensors);
    }
}

template <typename Pointer>
Pointer moved(Pointer pointer, std::uintptr_t bytes) {
    return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

}  // namespace

TEST_CASE("tensors in either layout are accepted, and so are slices of packed ones") {
    CHECK_NOTHROW(validate(tensors_at(good_problem, test::tensor_base), good_problem));
    CHECK_NOTHROW(
        validate(tensors_at(good_problem, test::tensor_base, test::Layout::bshd), good_problem));
    // Q, K, V of one (batch, seqlen, 3, heads, head_dim) tensor, and their gradients of another.
    BackwardTensors packed = good_tensors();
    const std::int64_t row = 3 * good_problem.heads * good_problem.head_dim;
    const auto slice = [&](std::uintptr_t base, std::uintptr_t part) {
        return TensorView{reinterpret_cast<void*>(
                              base + part * static_cast<std::uintptr_t>(good_problem.heads *
                                                                        good_problem.head_dim * 2)),
                          good_problem.seqlen_q * row, good_problem.head_dim, row};
    };
    packed.q = slice(0x100000, 0);
    packed.k = slice(0x100000, 1);
    packed.v = slice(0x100000, 2);
    packed.d_q = slice(0x9000000, 0);
    packed.d_k = slice(0x9000000, 1);
    packed.d_v = slice(0x9000000, 2);
    CHECK_NOTHROW(validate(packed, good_problem));
}

TEST_CASE("inputs may share memory: keys that are also values, broadcast row sums") {
    BackwardTensors tensors = good_tensors();
    tensors.v = tensors.k;
    tensors.lse.stride_head = 0;
    tensors.lse.stride_batch = 0;
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("a null tensor is refused by its name") {
    each_tensor_refused([](auto& view) { view.data = nullptr; }, {"data is null"});
    BackwardTensors tensors = good_tensors();
    tensors.lse.data = nullptr;
    refused(tensors, good_problem, {"lse.data is null"});
}

TEST_CASE("a tensor that is not aligned to 16 bytes is refused with its address") {
    for (const std::uintptr_t bytes : {1U, 2U, 8U}) {
        each_tensor_refused([&](auto& view) { view.data = moved(view.data, bytes); },
                            {"data is 0x", "multiple of 16 bytes"});
    }
    BackwardTensors tensors = good_tensors();
    tensors.lse.data = moved(tensors.lse.data, 2);
    refused(tensors, good_problem, {"lse.data is 0x", "multiple of 4 bytes"});
    tensors.lse.data = moved(tensors.lse.data, 2);
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("a stride that is not a multiple of 16 bytes is refused by name and value") {
    each_tensor_refused([](auto& view) { view.stride_seqlen += 4; },
                        {"stride_seqlen is 132", "multiple of 8 elements"});
    each_tensor_refused([](auto& view) { view.stride_head += 1; },
                        {"stride_head is 32769", "multiple of 8 elements"});
    each_tensor_refused([](auto& view) { view.stride_batch += 7; },
                        {"stride_batch is 131079", "multiple of 8 elements"});
}

TEST_CASE("a stride that is negative or 2^39 and more is refused by name and value") {
    for (const std::int64_t bad :
         {std::int64_t{-128}, std::int64_t{1} << 39, largest, -largest - 1}) {
        const std::string value = "is " + std::to_string(bad);
        each_tensor_refused([&](auto& view) { view.stride_seqlen = bad; },
                            {"stride_seqlen", value, "and below 2^39"});
        each_tensor_refused([&](auto& view) { view.stride_head = bad; },
                            {"stride_head", value, "and below 2^39"});
        each_tensor_refused([&](auto& view) { view.stride_batch = bad; },
                            {"stride_batch", value, "and below 2^39"});
    }
}

TEST_CASE("inputs may be broadcast over batch and head and seqlen and outputs may not") {
    BackwardTensors tensors = good_tensors();
    for (const NamedInput& input : inputs) {
        ConstTensorView& view = tensors.*input.view;
        view.stride_batch = view.stride_head = view.stride_seqlen = 0;
    }
    tensors.lse.stride_batch = tensors.lse.stride_head = 0;
    CHECK_NOTHROW(validate(tensors, good_problem));
    for (const NamedInput& input : inputs) {
        (tensors.*input.view).stride_head = -8;
        refused(tensors, good_problem,
                {std::string(input.name) + ".stride_head is -8", "0 or more and below 2^39"});
        (tensors.*input.view).stride_head = 0;
    }
    for (const NamedOutput& output : outputs) {
        for (std::int64_t TensorView::*const stride :
             {&TensorView::stride_batch, &TensorView::stride_head, &TensorView::stride_seqlen}) {
            BackwardTensors wrong = tensors;
            (wrong.*output.view).*stride = 0;
            refused(wrong, good_problem,
                    {std::string(output.name) + ".stride_", "is 0", "positive and below 2^39"});
        }
    }
}

TEST_CASE("a stride over a single index counts for nothing, whatever it is") {
    AttentionProblem single = good_problem;
    single.batch = single.heads = 1;
    for (const std::int64_t stride :
         {std::int64_t{0}, std::int64_t{-3}, std::int64_t{1}, largest}) {
        BackwardTensors tensors = good_tensors(single);
        for (const NamedInput& input : inputs) {
            (tensors.*input.view).stride_batch = (tensors.*input.view).stride_head = stride;
        }
        for (const NamedOutput& output : outputs) {
            (tensors.*output.view).stride_batch = (tensors.*output.view).stride_head = stride;
        }
        CHECK_NOTHROW(validate(tensors, single));
    }
}

TEST_CASE("row sums with negative strides are refused") {
    BackwardTensors tensors = good_tensors();
    tensors.lse.stride_head = -256;
    refused(tensors, good_problem, {"lse.stride_head is -256", "negative"});
    tensors = good_tensors();
    tensors.lse.stride_batch = -1;
    refused(tensors, good_problem, {"lse.stride_batch is -1", "negative"});
}

TEST_CASE("an output that overlaps itself is refused, while an input may") {
    for (const NamedOutput& output : outputs) {
        BackwardTensors tensors = good_tensors();
        (tensors.*output.view).stride_head = 128;  // heads on top of rows
        refused(tensors, good_problem, {output.name, "stride_", "overlap itself"});
        tensors = good_tensors();
        (tensors.*output.view).stride_seqlen = 120;  // rows that share 8 elements
        refused(tensors, good_problem, {output.name, "stride_seqlen is 120", "overlap itself"});
        tensors = good_tensors();
        // One row less than the heads of a batch need.
        (tensors.*output.view).stride_batch -= 128;
        refused(tensors, good_problem, {output.name, "stride_batch is 130944", "overlap itself"});
    }
    BackwardTensors tensors = good_tensors();
    tensors.k.stride_head = 8;
    CHECK_NOTHROW(validate(tensors, good_problem));
}

TEST_CASE("strides so large that their sum passes 64 bits are judged right") {
    AttentionProblem problem = good_problem;
    problem.causal = false;
    problem.seqlen_q = std::int64_t{1} << 30;
    problem.seqlen_kv = 256;
    problem.batch = 2;
    problem.heads = 1;
    BackwardTensors tensors = good_tensors(problem);
    tensors.d_q.stride_seqlen = std::int64_t{1} << 38;  // the rows reach 2^68 elements far
    tensors.d_q.stride_batch = (std::int64_t{1} << 38) + 128;
    refused(tensors, problem, {"d_q.stride_batch is 274877907072", "overlap itself"});
}

TEST_CASE("outputs that start at the same address as another tensor are refused with both names") {
    const BackwardTensors tensors = good_tensors();
    for (const NamedOutput& output : outputs) {
        for (const NamedInput& input : inputs) {
            BackwardTensors aliased = tensors;
            (aliased.*output.view).data = const_cast<void*>((tensors.*input.view).data);
            refused(aliased, good_problem,
                    {std::string(output.name) + ".data", std::string(input.name) + ".data",
                     "memory of its own"});
        }
        for (const NamedOutput& other : outputs) {
            if (other.view == output.view) {
                continue;
            }
            BackwardTensors aliased = tensors;
            (aliased.*output.view).data = (tensors.*other.view).data;
            refused(aliased, good_problem, {output.name, other.name, "memory of its own"});
        }
    }
}

TEST_CASE("an output at the address of the row sums is refused with both names") {
    for (const NamedOutput& output : outputs) {
        BackwardTensors aliased = good_tensors();
        (aliased.*output.view).data = const_cast<float*>(aliased.lse.data);
        refused(aliased, good_problem, {output.name, "lse", "memory of its own"});
    }
}

TEST_CASE("a tensor that starts in the workspace is refused by name") {
    const BackwardTensors tensors = good_tensors();
    constexpr std::size_t bytes = 4096;
    for (const NamedOutput& output : outputs) {
        BackwardTensors inside = tensors;
        constexpr std::uintptr_t address = std::uintptr_t{1} << 50U;
        auto* const workspace = reinterpret_cast<void*>(address);
        (inside.*output.view).data = reinterpret_cast<void*>(address + bytes - 256);
        check_refused(
            ErrorCode::invalid_argument,
            {std::string(output.name) + ".data", "within the workspace"},
            [&] { attention::validate_workspace(inside, workspace, bytes, bytes, good_problem); });
        (inside.*output.view).data = reinterpret_cast<void*>(address + bytes);
        CHECK_NOTHROW(attention::validate_workspace(inside, workspace, bytes, bytes, good_problem));
    }
}

TEST_CASE(
    "tensors of grouped heads and of values of another head dimension have their own extents") {
    AttentionProblem problem = good_problem;
    problem.heads_kv = 1;
    problem.head_dim_v = 64;
    BackwardTensors tensors = good_tensors(problem);
    // There is one head of keys, so its stride may be anything; rows of values are shorter.
    for (ConstTensorView* view : {&tensors.k, &tensors.v}) {
        view->stride_head = 3;
    }
    tensors.d_k.stride_head = tensors.d_v.stride_head = 0;
    tensors.d_v.stride_seqlen = 64;
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.d_k.stride_seqlen = 64;
    refused(tensors, problem, {"d_k.stride_seqlen is 64", "overlap itself"});
    tensors.d_k.stride_seqlen = 128;
    tensors.o.stride_head = 3;
    refused(tensors, problem, {"o.stride_head is 3", "multiple of 8"});
}

TEST_CASE("strides of fp32 gradients are multiples of 4 elements and of inputs still 8") {
    AttentionProblem problem = good_problem;
    problem.gradient_type = GradientType::fp32;
    BackwardTensors tensors = good_tensors(problem);
    for (const NamedOutput& output : outputs) {
        TensorView& view = tensors.*output.view;
        view.stride_seqlen = 132;
        view.stride_head = 132 * 256;
        view.stride_batch = 132 * 256 * 4;
    }
    CHECK_NOTHROW(validate(tensors, problem));
    tensors.d_v.stride_seqlen = 130;
    refused(tensors, problem, {"d_v.stride_seqlen is 130", "multiple of 4 elements (16 bytes)"});
    tensors.d_v.stride_seqlen = 132;
    tensors.v.stride_seqlen = 132;
    refused(tensors, problem, {"v.stride_seqlen is 132", "multiple of 8 elements (16 bytes)"});
}

TEST_CASE("tensors of length 0 are not looked at") {
    AttentionProblem problem = good_problem;
    problem.seqlen_q = 0;
    BackwardTensors tensors = good_tensors(problem);
    tensors.q = tensors.o = tensors.d_o = ConstTensorView{};
    tensors.d_q = {};
    tensors.lse = {};
    CHECK_NOTHROW(validate(tensors, problem));
    CHECK_NOTHROW(attention::validate_workspace(tensors, nullptr, 0, 0, problem));
    tensors.d_k.data = nullptr;
    refused(tensors, problem, {"d_k.data is null"});
    problem = good_problem;
    problem.seqlen_kv = 0;
    tensors = good_tensors(problem);
    tensors.k = tensors.v = ConstTensorView{};
    tensors.d_k = tensors.d_v = {};
    CHECK_NOTHROW(validate(tensors, problem));
}

TEST_CASE("zeros reach every element of a gradient and nothing between its rows") {
    test::fresh_driver();
    device::CudaDevice device(device::open_driver(BACKLIGHT_FAKE_DRIVER_PATH), 0);
    const AttentionProblem problem{
        .batch = 2, .heads = 3, .seqlen_q = 5, .seqlen_kv = 0, .head_dim = 8};
    struct Strides {
        std::int64_t batch, head, seqlen;
    };
    // Whole; heads innermost; with gaps after rows, heads, batches, and all of these; heads
    // outermost.
    for (const auto& [batch, head, seqlen] :
         {Strides{120, 40, 8}, Strides{120, 8, 24}, Strides{240, 80, 16}, Strides{144, 48, 8},
          Strides{200, 40, 8}, Strides{1000, 200, 24}, Strides{40, 96, 8}}) {
        CAPTURE(batch);
        CAPTURE(head);
        CAPTURE(seqlen);
        constexpr std::uint16_t untouched = 0xabcd;
        std::vector<std::uint16_t> memory(2000, untouched);
        std::vector<std::uint16_t> expected = memory;
        for (std::int64_t b = 0; b < 2; ++b) {
            for (std::int64_t h = 0; h < 3; ++h) {
                for (std::int64_t row = 0; row < 5; ++row) {
                    std::fill_n(expected.begin() + b * batch + h * head + row * seqlen, 8,
                                std::uint16_t{0});
                }
            }
        }
        BackwardTensors tensors;
        tensors.d_q = {memory.data(), batch, head, seqlen};
        attention::zero_gradients(device, tensors, problem, nullptr);
        CHECK(memory == expected);
    }
}

TEST_CASE("a stride of the row sums is refused from 2^39 elements on") {
    BackwardTensors tensors = good_tensors();
    tensors.lse.stride_batch = (std::int64_t{1} << 39) - 1;
    CHECK_NOTHROW(validate(tensors, good_problem));
    tensors.lse.stride_batch = std::int64_t{1} << 39;
    refused(tensors, good_problem, {"lse.stride_batch is 549755813888", "2^39"});
    tensors = good_tensors();
    tensors.lse.stride_head = std::numeric_limits<std::int64_t>::max();
    refused(tensors, good_problem, {"lse.stride_head is 9223372036854775807", "2^39"});
}
