// Which configurations are searched, and in which order.

#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "attention/validation.hpp"
#include "backlight/error.hpp"
#include "device/target.hpp"
#include "test_support.hpp"
#include "tuning/choice.hpp"
#include "tuning/search_space.hpp"

using namespace backlight;
using namespace backlight::tuning;
using device::target_by_name;

namespace {

AttentionProblem square(std::int64_t seqlen, std::int64_t head_dim) {
    return {.batch = 2, .heads = 4, .seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = head_dim};
}

}  // namespace

TEST_CASE("every enumerated configuration passes the validation of plans") {
    for (const char* name : {"sm_90a", "sm_120a"}) {
        const device::Target target = target_by_name(name);
        for (const std::int64_t head_dim : {64, 128}) {
            for (const std::int64_t seqlen : {64, 96, 4096}) {
                const AttentionProblem problem = square(seqlen, head_dim);
                const auto tiles = legal_tiles(problem, target);
                CHECK(!tiles.empty());
                for (const TileConfig& config : tiles) {
                    CHECK_NOTHROW(attention::validate(config, problem, target));
                    for (const TileConfig& variant : launch_variants(config)) {
                        CHECK_NOTHROW(attention::validate(variant, problem, target));
                    }
                }
            }
        }
    }
}

TEST_CASE("nothing legal within the ranges of TileConfig is missing from the enumeration") {
    const device::Target target = target_by_name("sm_90a");
    const AttentionProblem problem = square(1536, 128);
    const auto tiles = legal_tiles(problem, target, KernelFamily::mma);
    std::size_t legal = 0;
    TileConfig config;
    // One beyond each range, and every number of warps.
    for (config.block_q = 16; config.block_q <= 272; config.block_q += 16) {
        for (config.block_kv = 32; config.block_kv <= 288; config.block_kv += 32) {
            for (config.warps = 1; config.warps <= 33; ++config.warps) {
                for (config.stages = 1; config.stages <= 9; ++config.stages) {
                    if (is_legal(config, problem, target)) {
                        ++legal;
                        CHECK_MESSAGE(std::ranges::count(tiles, config) == 1, to_string(config));
                    }
                }
            }
        }
    }
    CHECK(tiles.size() == legal);
    CHECK(legal > 100);
}

TEST_CASE("of wgmma, stages as shared memory allows and groups of up to 16 heads are enumerated") {
    for (const std::int64_t head_dim : {64, 128}) {
        const AttentionProblem problem = square(4096, head_dim);
        const device::Target target = target_by_name("sm_90a");
        const auto tiles = legal_tiles(problem, target, KernelFamily::wgmma);
        std::size_t legal = 0;
        for (const int stages : {2, 3, 4}) {
            for (const int heads : {1, 2, 4, 8, 16}) {
                TileConfig config = kernel_preset("wgmma");
                config.stages = stages;
                config.heads_per_group = heads;
                const bool is_one = is_legal(config, problem, target);
                legal += is_one ? 1 : 0;
                CHECK(std::ranges::count(tiles, config) == (is_one ? 1 : 0));
            }
        }
        CHECK(tiles.size() == legal);
        CHECK(legal >= (head_dim == 64 ? 10 : 5));
    }
}

TEST_CASE("a family is enumerated alone or with the others, and only where it can run") {
    const AttentionProblem problem = square(4096, 128);
    const device::Target hopper = target_by_name("sm_90a");
    const auto all = legal_tiles(problem, hopper);
    const auto mma = legal_tiles(problem, hopper, KernelFamily::mma);
    const auto wgmma = legal_tiles(problem, hopper, KernelFamily::wgmma);
    const auto resident = legal_tiles(problem, hopper, KernelFamily::mma_resident);
    CHECK(all.size() == mma.size() + wgmma.size() + resident.size());
    CHECK(std::ranges::count(mma, KernelFamily::mma, &TileConfig::family) ==
          static_cast<std::ptrdiff_t>(mma.size()));
    CHECK(std::ranges::count(wgmma, KernelFamily::wgmma, &TileConfig::family) ==
          static_cast<std::ptrdiff_t>(wgmma.size()));
    CHECK(std::ranges::count(resident, KernelFamily::mma_resident, &TileConfig::family) ==
          static_cast<std::ptrdiff_t>(resident.size()));
    // Query tiles of 32, and of 64 where head_dim is 64; six groups of heads; who converts dQ.
    CHECK(resident.size() == 12);
    CHECK(legal_tiles(square(4096, 64), hopper, KernelFamily::mma_resident).size() == 24);
    // Wide heads: one place of dO or two, where those fit; six groups of heads.
    CHECK(legal_tiles(square(4096, 256), hopper).size() == 12);
    CHECK(legal_tiles(square(4096, 256), target_by_name("sm_120a")).size() == 6);
    CHECK(legal_tiles(square(4096, 136), target_by_name("sm_120a")).size() == 12);
    for (const char* name : {"sm_100a", "sm_120a"}) {
        CHECK(legal_tiles(problem, target_by_name(name), KernelFamily::wgmma).empty());
    }
    CHECK_FALSE(legal_tiles(square(192, 128), hopper, KernelFamily::wgmma).empty());
    CHECK(kernel_family("") == std::nullopt);
    CHECK(kernel_family("mma") == KernelFamily::mma);
    CHECK(kernel_family("wgmma") == KernelFamily::wgmma);
    CHECK(kernel_family("mma_resident") == KernelFamily::mma_resident);
}

TEST_CASE("what needs more shared memory than a block has is not enumerated") {
    const auto hopper = legal_tiles(square(4096, 128), target_by_name("sm_90a"));
    const auto geforce = legal_tiles(square(4096, 128), target_by_name("sm_120a"));
    CHECK(geforce.size() < hopper.size());
    for (const TileConfig& config : geforce) {
        CHECK(shared_memory_bytes(config, 128) <= 99 * 1024);
        CHECK(std::ranges::count(hopper, config) == 1);
    }
}

TEST_CASE("the presets are tried first and the order of all is strict") {
    const auto tiles = legal_tiles(square(4096, 64), target_by_name("sm_90a"));
    REQUIRE(tiles.size() > kernel_presets().size());
    for (std::size_t i = 0; i < kernel_presets().size(); ++i) {
        CHECK(tiles[i] == kernel_presets()[i].config);
    }
    for (std::size_t i = 1; i < tiles.size(); ++i) {
        CHECK(comes_before(tiles[i - 1], tiles[i]));
        CHECK(!comes_before(tiles[i], tiles[i - 1]));
    }
}

TEST_CASE("a configuration has three other ways to be launched") {
    const TileConfig config = kernel_preset("v2");
    const auto variants = launch_variants(config);
    CHECK(variants.size() == 3);
    for (const TileConfig& variant : variants) {
        CHECK(variant != config);
        CHECK(variant.block_q == config.block_q);
        CHECK(variant.stages == config.stages);
        CHECK(comes_before(config, variant));
    }
}

TEST_CASE("a problem that no kernel takes is refused by the enumeration as by a plan") {
    test::check_refused(ErrorCode::unsupported, {"head_dim is 136"}, [] {
        legal_tiles(square(64, 136), target_by_name("sm_90a"), KernelFamily::mma);
    });
}

TEST_CASE("the heuristic is legal wherever a configuration with tiles of 16 by 32 is") {
    for (const char* name : {"sm_90a", "sm_100a", "sm_120a"}) {
        const device::Target target = target_by_name(name);
        for (const std::int64_t head_dim : {64, 128}) {
            for (std::int64_t seqlen = 32; seqlen <= 640; seqlen += 32) {
                const AttentionProblem problem = square(seqlen, head_dim);
                CAPTURE(to_string(problem));
                CHECK(is_legal(heuristic(problem, target), problem, target));
            }
        }
    }
}

TEST_CASE(
    "the heuristic names a configuration for problems that are refused whatever their numbers") {
    constexpr std::int64_t huge = std::int64_t{1} << 62;
    for (const char* name : {"sm_90a", "sm_120a"}) {
        const device::Target target = target_by_name(name);
        for (const std::int64_t seqlen : {std::int64_t{-64}, std::int64_t{64}, huge}) {
            for (const std::int64_t head_dim : {std::int64_t{-4}, std::int64_t{0}, huge}) {
                AttentionProblem problem = square(seqlen, head_dim);
                problem.causal = true;
                CHECK_FALSE(is_legal(heuristic(problem, target), problem, target));
            }
        }
    }
}

TEST_CASE("the heuristic is wgmma where that is legal and else mma_resident") {
    const device::Target hopper = target_by_name("sm_90a");
    for (const std::int64_t head_dim : {64, 128}) {
        for (std::int64_t seqlen = 128; seqlen <= 16384; seqlen *= 2) {
            for (const bool causal : {false, true}) {
                AttentionProblem problem = square(seqlen, head_dim);
                problem.causal = causal;
                const TileConfig config = heuristic(problem, hopper);
                TileConfig preset = kernel_preset("wgmma");
                preset.heads_per_group = config.heads_per_group;
                preset.stages = head_dim == 64 ? 3 : 2;
                CHECK(config == preset);
                for (const char* name : {"sm_100a", "sm_120a"}) {
                    const TileConfig resident = heuristic(problem, target_by_name(name));
                    TileConfig v5 = kernel_preset("v5");
                    v5.block_q = head_dim == 64 ? 64 : 32;
                    v5.heads_per_group = resident.heads_per_group;
                    CHECK(resident == v5);
                }
            }
        }
    }
    const auto heads = [&](std::int64_t seqlen, std::int64_t head_dim, bool causal) {
        AttentionProblem problem = square(seqlen, head_dim);
        problem.causal = causal;
        return heuristic(problem, hopper).heads_per_group;
    };
    // As measured: see the heuristic.
    for (const std::int64_t head_dim : {64, 128}) {
        CHECK(heads(4096, head_dim, true) == 4);
        CHECK(heads(8192, head_dim, true) == 2);
        CHECK(heads(1024, head_dim, false) == 1);
        CHECK(heads(8192, head_dim, false) == 1);
    }
    const device::Target geforce = target_by_name("sm_120a");
    for (const device::Target& target : {hopper, geforce}) {
        for (const std::int64_t head_dim : {64, 128}) {
            for (std::int64_t seqlen_q = 32; seqlen_q <= 4160; seqlen_q += 32) {
                // Multiples of 64, none of 128; lengths that 64 does not divide.
                for (const std::int64_t seqlen_kv : {64, 4160, 4128}) {
                    AttentionProblem problem = square(seqlen_kv, head_dim);
                    problem.seqlen_q = seqlen_q;
                    const TileConfig config = heuristic(problem, target);
                    CHECK(config.family == (target.compute_major == 9
                                                ? KernelFamily::wgmma
                                                : KernelFamily::mma_resident));
                    CHECK(is_legal(config, problem, target));
                }
            }
        }
    }
    CHECK(heuristic(square(4160, 128), geforce).block_q == 32);
    CHECK(heuristic(square(4160, 64), geforce).block_q == 64);
    AttentionProblem unequal = square(4160, 64);
    unequal.seqlen_q = 4128;
    CHECK(heuristic(unequal, geforce).block_q == 32);
    // Query tiles of 64 wherever they pad no more rows, and both head dimensions fit.
    unequal.seqlen_q = 4150;
    CHECK(heuristic(unequal, geforce).block_q == 64);
    unequal.head_dim_v = 40;
    CHECK(heuristic(unequal, geforce).block_q == 64);
    CHECK(heuristic(unequal, hopper).stages == 3);
    unequal.head_dim_v = 72;
    CHECK(heuristic(unequal, geforce).block_q == 32);
    CHECK(heuristic(unequal, hopper).stages == 2);
    // A narrow window makes tiles alike, as no mask does.
    AttentionProblem windowed = square(16384, 128);
    windowed.causal = true;
    CHECK(heuristic(windowed, hopper).heads_per_group == 2);
    windowed.window_left = 1023;
    CHECK(heuristic(windowed, hopper).heads_per_group == 1);
    windowed.window_left = 8192;
    CHECK(heuristic(windowed, hopper).heads_per_group == 2);
    // Where maps of sequences take the room of a stage.
    AttentionProblem packed = square(4096, 64);
    packed.packed = PackedSequences{.total_q = 4096, .total_kv = 4096};
    CHECK(heuristic(packed, hopper).family == KernelFamily::wgmma);
    CHECK(heuristic(packed, hopper).stages == 2);
    packed.head_dim = 128;
    CHECK(heuristic(packed, hopper).family == KernelFamily::wgmma);
    // Above 128 the widened v4, with two places of dO where there is room.
    for (const device::Target& target : {hopper, geforce}) {
        for (const auto& [head_dim, head_dim_v] :
             {std::pair{256, 256}, std::pair{192, 128}, std::pair{8, 256}, std::pair{200, 136}}) {
            AttentionProblem wide = square(4096, head_dim);
            wide.head_dim_v = head_dim_v;
            TileConfig expected = kernel_preset("v4");
            expected.warps = 8;
            expected.stages =
                target.name == "sm_120a" && head_dim >= 200 && head_dim_v >= 136 ? 1 : 2;
            expected.heads_per_group = 1;
            CHECK(heuristic(wide, target) == expected);
            CHECK(is_legal(expected, wide, target));
        }
    }
    // Groups of heads that fill 32 MiB of Q, dO and dQ.
    const auto geforce_heads = [&](std::int64_t seqlen, std::int64_t head_dim, bool causal) {
        AttentionProblem problem = square(seqlen, head_dim);
        problem.causal = causal;
        return heuristic(problem, geforce).heads_per_group;
    };
    CHECK(geforce_heads(4096, 128, true) == 8);
    CHECK(geforce_heads(4096, 64, true) == 16);
    CHECK(geforce_heads(16384, 128, true) == 2);
    CHECK(geforce_heads(65536, 128, true) == 1);
    CHECK(geforce_heads(64, 64, true) == 64);
    CHECK(geforce_heads(4096, 128, false) == 1);
    // Of keys and values.
    AttentionProblem grouped = square(4096, 128);
    grouped.causal = true;
    grouped.heads_kv = 1;
    CHECK(heuristic(grouped, geforce).heads_per_group == 2);
    CHECK(heuristic(grouped, hopper).heads_per_group == 8);
    grouped.seqlen_q = grouped.seqlen_kv = 16384;
    CHECK(heuristic(grouped, hopper).heads_per_group == 2);
    grouped.causal = false;
    CHECK(heuristic(grouped, hopper).heads_per_group == 1);
}
