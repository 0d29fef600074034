#include "backlight/tile_config.hpp"

#include <string>
#include <utility>
#include <vector>

#include "backlight/problem.hpp"
#include "test_support.hpp"

using backlight::AttentionProblem;
using backlight::ErrorCode;
using backlight::kernel_preset;
using backlight::kernel_presets;
using backlight::KernelFamily;
using backlight::SequenceLengths;
using backlight::shared_memory_bytes;
using backlight::TileConfig;

TEST_CASE("the presets are v1, v2 and v3, with the tiles of the article, wgmma, v4 and v5") {
    REQUIRE(kernel_presets().size() == 6);
    CHECK(kernel_presets()[0].name == "v1");
    CHECK(kernel_presets()[1].name == "v2");
    CHECK(kernel_presets()[2].name == "v3");
    CHECK(kernel_preset("v1") ==
          TileConfig{.block_q = 64, .block_kv = 64, .warps = 16, .stages = 1});
    CHECK(kernel_preset("v2") ==
          TileConfig{.block_q = 64, .block_kv = 64, .warps = 8, .stages = 1});
    CHECK(kernel_preset("v3") ==
          TileConfig{.block_q = 32, .block_kv = 64, .warps = 8, .stages = 2});
    CHECK(kernel_presets()[3].name == "wgmma");
    CHECK(kernel_preset("wgmma").family == KernelFamily::wgmma);
    CHECK(kernel_presets()[4].name == "v4");
    CHECK(kernel_preset("v4").family == KernelFamily::mma_resident);
    CHECK(kernel_presets()[5].name == "v5");
    TileConfig converting = kernel_preset("v4");
    converting.converts_d_q = true;
    CHECK(kernel_preset("v5") == converting);
    for (const auto& preset : kernel_presets()) {
        CHECK_FALSE(preset.description.empty());
        CHECK(&kernel_preset(preset.name) == &preset.config);
    }
}

TEST_CASE("an unknown preset is refused with the names there are") {
    for (const char* name : {"v6", "", "V3", "v3 "}) {
        backlight::test::check_refused(
            ErrorCode::unknown_kernel,
            {"kernel is '" + std::string(name) + "'", "v1, v2, v3, wgmma, v4, v5"},
            [&] { kernel_preset(name); });
    }
}

TEST_CASE("shared memory at head_dim 128 is 81,936 bytes for v1 and v2 and 73,744 for v3") {
    CHECK(shared_memory_bytes(kernel_preset("v1"), 128) == 81936);
    CHECK(shared_memory_bytes(kernel_preset("v2"), 128) == 81936);
    CHECK(shared_memory_bytes(kernel_preset("v3"), 128) == 73744);
}

TEST_CASE("shared memory is K, V, a Q and dO tile a stage, P, dS and the barriers") {
    const TileConfig config{.block_q = 32, .block_kv = 128, .warps = 8, .stages = 3};
    CHECK(shared_memory_bytes(config, 64) ==
          2 * 128 * 64 * 2 + 3 * 2 * 32 * 64 * 2 + 2 * 32 * 128 * 2 + (1 + 2) * 8);
    // One stage has one barrier for its loads, as two stages have.
    CHECK(shared_memory_bytes({.stages = 2}, 64) - shared_memory_bytes({.stages = 1}, 64) ==
          2 * 64 * 64 * 2);
}

TEST_CASE("shared memory of wgmma is K, V, Q, dO, dS, dQ, statistics, posted work and barriers") {
    TileConfig config = kernel_preset("wgmma");
    config.stages = 2;
    // Two stages of Q and dO with LSE and delta; two buffers of dS; two of a part of dQ in fp32,
    // and on its way to its own type three halves of one in fp32, one in that type, and 1 KB of
    // zeros; six pieces of work; two barriers a stage of Q and of dO, a buffer of dS and a piece of
    // work, and three of that way.
    const auto all_but_kv = [](std::size_t head_dim) {
        return 2 * (2 * 64 * head_dim * 2 + 2 * 64 * 4) + 2 * 64 * 128 * 2 + 2 * 64 * 64 * 4 +
               3 * 64 * 32 * 4 + 64 * 64 * 2 + 1024 + 6 * 32 + (2 * 4 + 2 * 2 + 6 * 2 + 3) * 8;
    };
    // K and V with two barriers each, at head_dim 64 twice, and there dK has a place of its own.
    CHECK(shared_memory_bytes(config, 128) == all_but_kv(128) + 2 * (128 * 128 * 2 + 2 * 8));
    CHECK(shared_memory_bytes(config, 64) ==
          all_but_kv(64) + 2 * 2 * (128 * 64 * 2 + 2 * 8) + 128 * 64 * 2);
    TileConfig deeper = config;
    deeper.stages = 3;
    for (const std::int64_t head_dim : {64, 128}) {
        CHECK(shared_memory_bytes(deeper, head_dim) - shared_memory_bytes(config, head_dim) ==
              static_cast<std::size_t>(2 * 64 * head_dim * 2 + 2 * 64 * 4 + 4 * 8));
    }
    // What takes no shared memory.
    for (const int heads : {1, 16}) {
        TileConfig other = config;
        other.heads_per_group = heads;
        CHECK(shared_memory_bytes(other, 64) == shared_memory_bytes(config, 64));
    }
}

TEST_CASE("shared memory of mma_resident is K, Q twice, dO, dS twice, statistics and barriers") {
    TileConfig config = kernel_preset("v4");
    const auto expected = [](std::size_t block_q, std::size_t head_dim) {
        return 64 * head_dim * 2 + 3 * block_q * head_dim * 2 + 2 * 64 * block_q * 2 +
               2 * block_q * 4 + 5 * 8;
    };
    CHECK(shared_memory_bytes(config, 128) == expected(32, 128));
    CHECK(shared_memory_bytes(config, 64) == expected(32, 64));
    config.block_q = 64;
    CHECK(shared_memory_bytes(config, 64) == expected(64, 64));
    // Two blocks fit the 100 KiB of a GeForce's multiprocessor, each with the 1 KiB that the driver
    // keeps for itself; three of the smallest.
    CHECK(expected(32, 128) == 49448);
    CHECK(expected(64, 64) == 49704);
    CHECK(2 * (expected(64, 64) + 1024) <= 100 * 1024);
    CHECK(3 * (expected(32, 64) + 1024) <= 100 * 1024);
    // A ticket more where the blocks convert dQ.
    config.converts_d_q = true;
    CHECK(shared_memory_bytes(config, 64) == expected(64, 64) + 8);
    CHECK(2 * (expected(64, 64) + 8 + 1024) <= 100 * 1024);
}

TEST_CASE("shared memory of wide heads is K, Q twice, dO once or twice, dS twice and P") {
    TileConfig config = kernel_preset("v4");
    config.warps = 8;
    const auto expected = [](std::size_t qk, std::size_t v, std::size_t d_o_stages) {
        const std::size_t later =
            32 * 2 * (qk + (d_o_stages - 1) * v) + 2 * 64 * 32 * 2 + 64 * 32 * 4;
        // V passes there.
        const std::size_t needed = later > 64 * v * 2 ? later : 64 * v * 2;
        return 64 * qk * 2 + 32 * 2 * (qk + v) + needed + 2 * 32 * 4 + (5 + d_o_stages) * 8;
    };
    for (const auto& [qk, v] : {std::pair{256, 256}, std::pair{192, 128}, std::pair{64, 256},
                                std::pair{256, 64}, std::pair{192, 192}}) {
        for (int stages = 1; stages <= 2; ++stages) {
            config.stages = stages;
            CHECK(shared_memory_bytes(config, AttentionProblem{.head_dim = qk, .head_dim_v = v}) ==
                  expected(static_cast<std::size_t>(qk), static_cast<std::size_t>(v),
                           static_cast<std::size_t>(stages)));
        }
    }
    config.stages = 1;
    CHECK(shared_memory_bytes(config, 256) == 98608);
    CHECK(shared_memory_bytes(config, 256) <= 99 * 1024);
}

TEST_CASE("the families have names of their own and all but mma take heads in groups") {
    std::vector<std::string> names;
    for (const KernelFamily family : backlight::kernel_families()) {
        names.emplace_back(to_string(family));
        CHECK(backlight::groups_heads(family) == (family != KernelFamily::mma));
    }
    CHECK(names == std::vector<std::string>{"mma", "wgmma", "mma_resident"});
}

TEST_CASE("the text of a configuration names every field with its value") {
    CHECK(to_string(TileConfig{.block_q = 32,
                               .block_kv = 64,
                               .warps = 8,
                               .stages = 2,
                               .sequence_lengths = SequenceLengths::compile_time,
                               .programmatic_dependent_launch = false}) ==
          "block_q=32 block_kv=64 warps=8 stages=2 sequence_lengths=compile_time "
          "programmatic_dependent_launch=false");
    CHECK(to_string(TileConfig{.family = KernelFamily::wgmma,
                               .block_q = 64,
                               .block_kv = 128,
                               .warps = 16,
                               .stages = 3,
                               .heads_per_group = 8}) ==
          "family=wgmma heads_per_group=8 block_q=64 block_kv=128 warps=16 "
          "stages=3 sequence_lengths=run_time programmatic_dependent_launch=true");
}
