#include "attention/family_support.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attention/fitted_config.hpp"
#include "attention/kernels.hpp"
#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"
#include "validation_test_support.hpp"

using namespace backlight;
using namespace backlight::test::validation;
using attention::validate;
using test::check_refused;

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
    refused_config(config, "converts_d_q is true: it must be false for mma_resident");
    // The same, of a preset that is fitted.
    refused_config(attention::fitted_config(kernel_preset("v5"), problem, blackwell()),
                   "converts_d_q is true: it must be false for mma_resident");
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
