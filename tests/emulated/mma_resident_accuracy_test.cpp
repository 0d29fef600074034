// Configurations of the register-resident mma kernel other than its preset, on the emulated device
// against fp64. The preset is tested beside the others (accuracy_test.cpp, schedules_test.cpp).
#include <array>
#include <utility>

#include "emulated_test_support.hpp"

namespace backlight::test {

namespace {

using tool::Layout;

TileConfig resident_config(int block_q, int heads_per_group) {
    TileConfig config = kernel_preset("v4");
    config.block_q = block_q;
    config.heads_per_group = heads_per_group;
    return config;
}

TEST_CASE("mma_resident: query tiles of 64 match fp64 in both types with and without a mask") {
    EmulatedSession session;
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        for (const bool causal : {false, true}) {
            for (const std::int64_t seqlen : {64, 320}) {
                require_right(session, square_problem(1, 2, seqlen, 64, causal, dtype),
                              resident_config(64, 1));
            }
        }
    }
}

TEST_CASE("mma_resident: groups of heads of any size match fp64, also where the last is smaller") {
    EmulatedSession session;
    for (const int heads : {1, 2, 4, 5, 1024}) {
        require_right(session, square_problem(2, 3, 128, 64, true), resident_config(32, heads));
    }
    require_right(session, square_problem(1, 3, 192, 128, false), resident_config(32, 2));
}

TEST_CASE("mma_resident: dQ that the blocks convert matches fp64 in every layout and length") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {64, 128}) {
        for (const int heads : {1, 2, 1024}) {
            TileConfig config = resident_config(head_dim == 64 ? 64 : 32, heads);
            config.converts_d_q = true;
            // More key tiles than query tiles, and fewer.
            for (const auto& [seqlen_q, seqlen_kv] : {std::pair{64, 320}, std::pair{192, 64}}) {
                tool::CheckedProblem problem = square_problem(1, 3, seqlen_q, head_dim, false);
                problem.problem.seqlen_kv = seqlen_kv;
                problem.layout = Layout::bshd;
                require_right(session, problem, config);
            }
            require_right(session, square_problem(1, 3, 128, head_dim, true, DataType::fp16),
                          config);
        }
    }
}

TEST_CASE("mma_resident: fp16 matches fp64 in every layout, with any scale and unequal lengths") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {64, 128}) {
        const TileConfig config = resident_config(head_dim == 64 ? 64 : 32, 4);
        for (const Layout layout : {Layout::bshd, Layout::packed_qkv}) {
            tool::CheckedProblem problem =
                square_problem(2, 2, 128, head_dim, true, DataType::fp16);
            problem.layout = layout;
            require_right(session, problem, config);
        }
        for (const float scale : {0.03F, -0.1F, 0.0F}) {
            tool::CheckedProblem problem =
                square_problem(1, 2, 128, head_dim, true, DataType::fp16);
            problem.problem.softmax_scale = scale;
            require_right(session, problem, config);
        }
        tool::CheckedProblem unequal = square_problem(1, 2, 64, head_dim, false, DataType::fp16);
        unequal.problem.seqlen_kv = 320;
        require_right(session, unequal, config);
    }
    // Parts of 64 rows of which half exist, in the convert kernel too.
    tool::CheckedProblem odd = square_problem(1, 2, 96, 128, false, DataType::fp16);
    odd.problem.seqlen_kv = 64;
    require_right(session, odd, resident_config(32, 1));
}

TEST_CASE("mma_resident: no schedule of other configurations is reported or changes dK and dV") {
    EmulatedSession session;
    for (const TileConfig& config : {resident_config(64, 1), resident_config(64, 2)}) {
        require_same_bits(session, square_problem(1, 3, 192, 64, true), config, 30);
    }
}

TEST_CASE("mma_resident: blocks in any order on any number of host threads give the same bits") {
    using emulation::GridOrder;
    require_same_bits(square_problem(1, 3, 192, 128, true), resident_config(32, 2),
                      std::array{GridOrder::ascending, GridOrder::random}, std::array{1, 4});
}

}  // namespace

}  // namespace backlight::test
