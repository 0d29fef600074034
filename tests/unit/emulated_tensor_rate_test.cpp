// What slowing the tensor cores takes, and what a kernel executes. No GPU.

#include "emulated_tensor_rate.hpp"

#include <doctest/doctest.h>

#include <string>

#include "attention/kernels.hpp"
#include "compiler/kernel_store.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using device::target_by_name;
using test::check_refused;

namespace {

const AttentionProblem causal{
    .batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .head_dim = 128, .causal = true};

std::string main_specialisation(const char* preset, int mma_repeats) {
    return attention::backward_chain(causal, kernel_preset(preset), target_by_name("sm_90a"),
                                     mma_repeats)
        .at(1)
        .request.specialisation;
}

}  // namespace

TEST_CASE("sm_90 makes each product five times to be as slow as sm_120") {
    const EmulatedTensorRate rate =
        emulated_tensor_rate(target_by_name("sm_90a"), target_by_name("sm_120"));
    CHECK(rate.mma_repeats == 5);
    CHECK(rate.device.clocks == 6.08);
    CHECK(rate.emulated.clocks == 32);
    CHECK(rate.emulated.target == "sm_120a");
    CHECK(rate.slowed_clocks() == doctest::Approx(30.4));
}

TEST_CASE("a rate is refused by name where it is not known or not the slower one") {
    const auto sm_90 = target_by_name("sm_90a");
    const auto sm_120 = target_by_name("sm_120a");
    check_refused(ErrorCode::unsupported, {"sm_100a", "not known", "sm_90, sm_120"},
                  [&] { emulated_tensor_rate(sm_90, target_by_name("sm_100")); });
    check_refused(ErrorCode::unsupported, {"sm_121a", "not known"},
                  [&] { emulated_tensor_rate(target_by_name("sm_121"), sm_120); });
    check_refused(ErrorCode::unsupported, {"sm_90a on a device of sm_120a", "6.08", "32"},
                  [&] { emulated_tensor_rate(sm_120, sm_90); });
    check_refused(ErrorCode::unsupported, {"sm_120a on a device of sm_120a"},
                  [&] { emulated_tensor_rate(sm_120, sm_120); });
}

TEST_CASE("kernels of wgmma cannot be slowed and are refused by name") {
    CHECK(can_be_slowed({"v3", kernel_preset("v3")}));
    CHECK(can_be_slowed({"v4", kernel_preset("v4")}));
    CHECK_FALSE(can_be_slowed({"wgmma", kernel_preset("wgmma")}));
    CHECK_FALSE(can_be_slowed(parse_kernel("default")));
    check_refused(ErrorCode::unsupported, {"kernel is default", "it must be named"},
                  [] { check_can_be_slowed({parse_kernel("default")}); });
    check_can_be_slowed({{"v3", kernel_preset("v3")}, {"v4", kernel_preset("v4")}});
    check_refused(ErrorCode::unsupported, {"kernel mine", "family wgmma"}, [] {
        check_can_be_slowed({{"v3", kernel_preset("v3")}, {"mine", kernel_preset("wgmma")}});
    });
    check_refused(ErrorCode::unsupported, {"mma_repeats is 5", "wgmma"},
                  [] { main_specialisation("wgmma", 5); });
    for (const int repeats : {-1, 0, 65}) {
        check_refused(ErrorCode::invalid_argument, {"mma_repeats is", "1 ... 64"},
                      [&] { main_specialisation("v4", repeats); });
    }
}

TEST_CASE("without a mask a kernel executes the five products in full") {
    AttentionProblem full = causal;
    full.causal = false;
    for (const char* preset : {"v1", "v2", "v3", "v4", "v5"}) {
        CHECK(executed_flops(full, kernel_preset(preset)) == backward_flops(full));
    }
    full.seqlen_q = 96;
    full.seqlen_kv = 320;
    CHECK(executed_flops(full, kernel_preset("v3")) == backward_flops(full));
}

TEST_CASE("with the causal mask a kernel executes tiles on the diagonal in full") {
    // Of the 64 blocks of 64 keys, block j begins with query 64 j: 2 (64 − j) tiles of 32.
    const double tiles_of_32 = 8 * 16 * (2.0 * 64 * 65 / 2);
    CHECK(tiles_of_32 == 532480);
    const double flops = tiles_of_32 * 5 * 2 * 32 * 64 * 128;
    CHECK(executed_flops(causal, kernel_preset("v3")) == flops);
    CHECK(executed_flops(causal, kernel_preset("v2")) == flops);
    CHECK(flops > backward_flops(causal));
    // Queries in tiles wider than a block of keys begin with the tile that holds the diagonal.
    AttentionProblem small = causal;
    small.batch = small.heads = 1;
    small.seqlen_q = small.seqlen_kv = 128;
    TileConfig wide = kernel_preset("v2");
    wide.block_q = 128;
    CHECK(executed_flops(small, wide) == 2 * 5 * 2.0 * 128 * 64 * 128);
}

TEST_CASE("kernels of mma_resident leave keys out that no query of a tile on the diagonal sees") {
    // The first of the two tiles of 32 queries on a block's diagonal takes half of its 64 keys.
    const double tiles_of_32 = 8 * 16 * (2.0 * 64 * 65 / 2 - 64 / 2.0);
    const double flops = tiles_of_32 * 5 * 2 * 32 * 64 * 128;
    CHECK(executed_flops(causal, kernel_preset("v4")) == flops);
    CHECK(executed_flops(causal, kernel_preset("v5")) == flops);
    CHECK(flops > backward_flops(causal));
    AttentionProblem narrow = causal;
    narrow.head_dim = 64;
    TileConfig square = kernel_preset("v4");
    square.block_q = 64;
    CHECK(executed_flops(narrow, square) == executed_flops(narrow, kernel_preset("v3")));
}

TEST_CASE("products that are not repeated leave the text of a kernel as it is") {
    for (const char* preset : {"v1", "v2", "v3", "v4", "v5"}) {
        const auto target = target_by_name("sm_90a");
        const auto plain = attention::backward_chain(causal, kernel_preset(preset), target);
        const auto once = attention::backward_chain(causal, kernel_preset(preset), target, 1);
        const auto five = attention::backward_chain(causal, kernel_preset(preset), target, 5);
        for (std::size_t i = 0; i < plain.size(); ++i) {
            CHECK(once[i].request.specialisation == plain[i].request.specialisation);
            CHECK(plain[i].request.specialisation.find("mma_repeats") == std::string::npos);
            CHECK((five[i].request.specialisation == plain[i].request.specialisation) == (i != 1));
        }
        const std::string line = "constexpr int mma_repeats = 5;";
        CHECK(main_specialisation(preset, 5).find(line) != std::string::npos);
    }
    CHECK(main_specialisation("v4", 1) ==
          "// Rendered by Backlight: attention_backward_mma_resident.\n"
          "#pragma once\n\n"
          "#include \"primitives/types.cuh\"\n\n"
          "namespace backlight::kernel::specialisation {\n\n"
          "using Element = bf16;\n"
          "constexpr int head_dim = 128;\n"
          "constexpr bool causal = true;  // query i attends to keys 0 ... i, of equal lengths in "
          "whole "
          "tiles\n"
          "constexpr int block_q = 32;  // query rows a tile\n"
          "constexpr int block_kv = 64;  // key rows a thread block\n"
          "constexpr int seqlen_q = 0;  // 0: a kernel argument\n"
          "constexpr int seqlen_kv = 0;  // 0: a kernel argument\n"
          "constexpr bool converts_d_q = false;  // no kernel follows that does\n"
          "constexpr int shared_bytes = 49448;  // as the host counts\n"
          "constexpr int shared_bytes_per_multiprocessor = 233472;\n"
          "\n}  // namespace backlight::kernel::specialisation\n");
}

TEST_CASE("a kernel whose products are repeated has a key of its own in the cache") {
    const compiler::KernelStore store({.cache_directory = {}});
    const auto key = [&](int mma_repeats) {
        return store
            .key_of(attention::backward_chain(causal, kernel_preset("v3"), target_by_name("sm_90a"),
                                              mma_repeats)[1]
                        .request,
                    "13.0.0")
            .digest();
    };
    CHECK(key(1) != key(5));
    CHECK(key(5) != key(8));
}
