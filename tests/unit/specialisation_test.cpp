#include "compiler/specialisation.hpp"

#include <doctest/doctest.h>

#include <string>

#include "attention/kernels.hpp"

using backlight::compiler::SpecialisationWriter;

TEST_CASE("a specialisation is a header of constants that a person can read") {
    SpecialisationWriter writer("attention_backward_mma");
    writer.type("Element", "bf16")
        .integer("block_q", 32, "query rows a tile")
        .boolean("causal", true)
        .boolean("full", false);
    CHECK(writer.text() ==
          "// Rendered by Backlight: attention_backward_mma.\n"
          "#pragma once\n\n"
          "#include \"primitives/types.cuh\"\n\n"
          "namespace backlight::kernel::specialisation {\n\n"
          "using Element = bf16;\n"
          "constexpr int block_q = 32;  // query rows a tile\n"
          "constexpr bool causal = true;\n"
          "constexpr bool full = false;\n"
          "\n}  // namespace backlight::kernel::specialisation\n");
}

namespace {

std::string main_specialisation(const backlight::AttentionProblem& problem,
                                const backlight::TileConfig& config) {
    return backlight::attention::mma_kernel(problem, config,
                                            backlight::device::target_by_name("sm_90a"))
        .request.specialisation;
}

}  // namespace

TEST_CASE(
    "sequence lengths enter the main kernel's constants only where the configuration says so") {
    backlight::AttentionProblem problem{.seqlen_q = 512, .seqlen_kv = 1024, .head_dim = 128};
    backlight::TileConfig config;
    const std::string run_time = main_specialisation(problem, config);
    CHECK(run_time.find("constexpr int seqlen_q = 0;") != std::string::npos);
    config.sequence_lengths = backlight::SequenceLengths::compile_time;
    const std::string compile_time = main_specialisation(problem, config);
    CHECK(compile_time.find("constexpr int seqlen_q = 512;") != std::string::npos);
    CHECK(compile_time.find("constexpr int seqlen_kv = 1024;") != std::string::npos);
    // One cubin serves every length, batch, head count and scale.
    problem = {.batch = 3,
               .heads = 5,
               .seqlen_q = 64,
               .seqlen_kv = 64,
               .head_dim = 128,
               .softmax_scale = 2.0F};
    CHECK(main_specialisation(problem, {}) == run_time);
}

TEST_CASE("whatever changes the main kernel's code changes its specialisation") {
    const backlight::AttentionProblem problem{.seqlen_q = 512, .seqlen_kv = 512, .head_dim = 128};
    const backlight::TileConfig config;
    const std::string base = main_specialisation(problem, config);
    backlight::AttentionProblem other = problem;
    other.causal = true;
    CHECK(main_specialisation(other, config) != base);
    other = problem;
    other.dtype = backlight::DataType::fp16;
    CHECK(main_specialisation(other, config) != base);
    other = problem;
    other.head_dim = 64;
    CHECK(main_specialisation(other, config) != base);
    for (const backlight::TileConfig& changed :
         {backlight::TileConfig{.block_q = 32}, backlight::TileConfig{.block_kv = 128},
          backlight::TileConfig{.warps = 16}, backlight::TileConfig{.stages = 2}}) {
        CHECK(main_specialisation(problem, changed) != base);
    }
}
