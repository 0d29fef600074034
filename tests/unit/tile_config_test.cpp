#include "backlight/tile_config.hpp"

#include <string>

#include "test_support.hpp"

using backlight::ErrorCode;
using backlight::kernel_preset;
using backlight::kernel_presets;
using backlight::SequenceLengths;
using backlight::shared_memory_bytes;
using backlight::TileConfig;

TEST_CASE("the presets are v1, v2 and v3, with the tiles of the article") {
    REQUIRE(kernel_presets().size() == 3);
    CHECK(kernel_presets()[0].name == "v1");
    CHECK(kernel_presets()[1].name == "v2");
    CHECK(kernel_presets()[2].name == "v3");
    CHECK(kernel_preset("v1") ==
          TileConfig{.block_q = 64, .block_kv = 64, .warps = 16, .stages = 1});
    CHECK(kernel_preset("v2") ==
          TileConfig{.block_q = 64, .block_kv = 64, .warps = 8, .stages = 1});
    CHECK(kernel_preset("v3") ==
          TileConfig{.block_q = 32, .block_kv = 64, .warps = 8, .stages = 2});
    for (const auto& preset : kernel_presets()) {
        CHECK_FALSE(preset.description.empty());
        CHECK(&kernel_preset(preset.name) == &preset.config);
    }
}

TEST_CASE("an unknown preset is refused with the names there are") {
    for (const char* name : {"v4", "", "V3", "v3 "}) {
        backlight::test::check_refused(ErrorCode::unknown_kernel,
                                       {"kernel is '" + std::string(name) + "'", "v1, v2, v3"},
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

TEST_CASE("the text of a configuration names every field with its value") {
    CHECK(to_string(TileConfig{.block_q = 32,
                               .block_kv = 64,
                               .warps = 8,
                               .stages = 2,
                               .sequence_lengths = SequenceLengths::compile_time,
                               .programmatic_dependent_launch = false}) ==
          "block_q=32 block_kv=64 warps=8 stages=2 sequence_lengths=compile_time "
          "programmatic_dependent_launch=false");
}
