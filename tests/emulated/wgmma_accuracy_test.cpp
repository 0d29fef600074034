// Configurations of the wgmma kernel other than its preset, on the emulated device against fp64.
// The preset is tested beside the others (accuracy_test.cpp).
#include <array>

#include "emulated_test_support.hpp"

namespace backlight::test {

namespace {

using tool::Layout;
using verification::InputKind;

TileConfig wgmma_config(int stages, int heads_per_group) {
    TileConfig config = kernel_preset("wgmma");
    config.stages = stages;
    config.heads_per_group = heads_per_group;
    return config;
}

TEST_CASE("wgmma: any number of stages matches fp64, with more stages than tiles and fewer") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {64, 128}) {
        for (const int stages : {2, 3, 4}) {
            const TileConfig config = wgmma_config(stages, 1);
            if (shared_memory_bytes(config, head_dim) >
                session.device().properties().target.shared_bytes_per_block) {
                continue;
            }
            for (const std::int64_t seqlen : {128, 384}) {
                require_right(session, square_problem(1, 1, seqlen, head_dim, true), config);
            }
        }
    }
}

TEST_CASE("wgmma: groups of heads of any size match fp64, also where the last is not full") {
    EmulatedSession session;
    for (const int heads : {1, 4, 16}) {
        require_right(session, square_problem(2, 3, 256, 64, true), wgmma_config(2, heads));
    }
    require_right(session, square_problem(1, 3, 256, 64, false), wgmma_config(2, 2));
}

TEST_CASE("wgmma: fp16 matches fp64 in every layout, with any scale and unequal lengths") {
    EmulatedSession session;
    const TileConfig& config = kernel_preset("wgmma");
    for (const std::int64_t head_dim : {64, 128}) {
        for (const Layout layout : {Layout::bshd, Layout::packed_qkv}) {
            tool::CheckedProblem problem =
                square_problem(2, 2, 128, head_dim, true, DataType::fp16);
            problem.layout = layout;
            require_right(session, problem, config);
        }
        for (const float scale : {0.03F, -0.1F, 0.0F}) {
            tool::CheckedProblem problem =
                square_problem(1, 2, 128, head_dim, false, DataType::fp16);
            problem.problem.softmax_scale = scale;
            require_right(session, problem, config);
        }
        tool::CheckedProblem unequal = square_problem(1, 2, 64, head_dim, false, DataType::fp16);
        unequal.problem.seqlen_kv = 384;
        require_right(session, unequal, config);
    }
}

TEST_CASE("wgmma: no schedule of other configurations is reported or changes dK and dV") {
    EmulatedSession session;
    for (const TileConfig& config : {wgmma_config(3, 1), wgmma_config(2, 2), wgmma_config(3, 16)}) {
        require_same_bits(session, square_problem(1, 2, 256, 64, true), config, 8);
    }
}

TEST_CASE("wgmma: host threads that take blocks in any order give the bits of one") {
    using emulation::GridOrder;
    require_same_bits(square_problem(1, 3, 256, 64, true), kernel_preset("wgmma"),
                      std::array{GridOrder::ascending, GridOrder::random}, std::array{1, 4});
}

}  // namespace

}  // namespace backlight::test
