// The chain of the register-resident mma kernel: what is launched, with what, and where its
// workspace lies.
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "arguments/attention_backward_mma_resident.h"
#include "attention/fitted_config.hpp"
#include "attention/kernels.hpp"
#include "attention/workspace.hpp"
#include "backlight/runtime.hpp"
#include "plan_test_support.hpp"
#include "test_support.hpp"

using namespace backlight;
using fault::Launch;
using test::check_map;
using test::decoded;
using test::fake_options;
using test::fresh_driver;
using test::Layout;
using test::tensors_at;

namespace {

const AttentionProblem problem{.batch = 2,
                               .heads = 3,
                               .seqlen_q = 160,
                               .seqlen_kv = 256,
                               .head_dim = 128,
                               .softmax_scale = 0.25F};
constexpr std::size_t rows = 2 * 3 * 160;

std::vector<Launch> launches_of(const BackwardPlan& plan, const BackwardTensors& tensors) {
    auto& driver = fresh_driver();
    plan.run(tensors, test::workspace_address, plan.workspace_bytes(), nullptr);
    return driver.launches();
}

/// The chain's kernel of that number, as text.
std::string specialisation_of(const TileConfig& config, std::size_t number,
                              const char* target = "sm_120a") {
    return attention::backward_chain(problem, config, device::target_by_name(target))
        .at(number)
        .request.specialisation;
}

bool says(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("v4 launches delta, its kernel and convert with a block of 128 threads a tile of keys") {
    fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v4"));
    const auto launches = launches_of(*plan, tensors_at(problem, test::tensor_base));
    REQUIRE(launches.size() == 3);
    CHECK(launches[0].kernel == std::string("attention_backward_delta"));
    CHECK(launches[1].kernel == std::string("attention_backward_mma_resident"));
    CHECK(launches[2].kernel == std::string("attention_backward_convert"));
    CHECK(launches[0].grid[0] == 2 * 3 * 3);
    // Six heads in two groups of four, each with four tiles of keys.
    CHECK(launches[1].grid[0] == 2 * 4 * 4);
    CHECK(launches[2].grid[0] == 2 * 3 * 3);
    CHECK(launches[1].block[0] == 128);
    CHECK(launches[1].shared_bytes == 49448);
    for (std::size_t i = 0; i < launches.size(); ++i) {
        CHECK(launches[i].programmatic_dependent_launch == (i > 0));
    }
}

TEST_CASE(
    "v4 gets maps of its tiles, the statistics as delta writes them, and where dK and dV go") {
    fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v4"));
    for (const Layout layout : {Layout::bhsd, Layout::bshd}) {
        const BackwardTensors tensors = tensors_at(problem, test::tensor_base, layout);
        const auto launches = launches_of(*plan, tensors);
        REQUIRE(launches.size() == 3);
        const auto delta = launches[0].arguments_as<kernel::DeltaArguments>();
        const auto main = launches[1].arguments_as<kernel::MmaResidentArguments>();
        const auto convert = launches[2].arguments_as<kernel::ConvertArguments>();
        check_map(decoded(main.q), tensors.q, 160, 32);
        check_map(decoded(main.d_o), tensors.d_o, 160, 32);
        check_map(decoded(main.k), tensors.k, 256, 64);
        check_map(decoded(main.v), tensors.v, 256, 64);
        CHECK(main.negated_lse_log2 == delta.negated_lse_log2);
        CHECK(main.negated_delta == delta.negated_delta);
        CHECK(main.d_q_accumulator == delta.d_q_accumulator);
        CHECK(main.d_q_accumulator == convert.d_q_accumulator);
        CHECK(main.d_k == tensors.d_k.data);
        CHECK(main.d_v == tensors.d_v.data);
        CHECK(main.d_k_strides.seqlen == tensors.d_k.stride_seqlen);
        CHECK(main.d_v_strides.head == tensors.d_v.stride_head);
        CHECK(main.softmax_scale == 0.25F);
        CHECK(main.softmax_scale_log2 == doctest::Approx(0.25 * 1.4426950408889634));
        CHECK(main.heads == 3);
        CHECK(main.batch_heads == 6);
        CHECK(main.heads_per_group == 4);
        CHECK(main.seqlen_q == 160);
        CHECK(main.seqlen_kv == 256);
    }
}

TEST_CASE("v4 launches the kernel for wide heads with tiles and an accumulator of their widths") {
    fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem wide = problem;
    wide.head_dim = 192;
    wide.head_dim_v = 128;
    const auto plan = runtime.backward(wide, kernel_preset("v4"));
    CHECK(plan->config().warps == 8);
    const BackwardTensors tensors = tensors_at(wide, test::tensor_base);
    const auto launches = launches_of(*plan, tensors);
    REQUIRE(launches.size() == 3);
    CHECK(launches[1].kernel == std::string("attention_backward_mma_resident_wide"));
    CHECK(launches[1].grid[0] == 2 * 4 * 4);
    CHECK(launches[1].block[0] == 256);
    CHECK(launches[1].shared_bytes == shared_memory_bytes(plan->config(), wide));
    // Warps of 32 columns each.
    CHECK(launches[2].block[0] == 192);
    const attention::WorkspaceLayout layout(wide, plan->config());
    CHECK(layout.bytes - layout.d_q_accumulator_offset == rows * 192 * sizeof(float));
    CHECK(plan->workspace_bytes() == layout.bytes);
    const auto main = launches[1].arguments_as<kernel::MmaResidentArguments>();
    CHECK(decoded(main.q).extents[0] == 192);
    CHECK(decoded(main.v).extents[0] == 128);

    wide.head_dim = 136;
    wide.causal = true;
    wide.seqlen_q = wide.seqlen_kv = 128;
    const auto target = device::target_by_name("sm_120a");
    const TileConfig config = attention::fitted_config(kernel_preset("v4"), wide, target);
    const auto chain = attention::backward_chain(wide, config, target);
    for (const attention::KernelPlan& kernel : chain) {
        CHECK(says(kernel.request.specialisation, "constexpr int head_dim = 192;"));
        CHECK(says(kernel.request.specialisation, "constexpr int head_dim_qk = 136;"));
        CHECK(says(kernel.request.specialisation, "constexpr int tile_head_dim_v = 128;"));
        CHECK_FALSE(says(kernel.request.specialisation, "constexpr int head_dim_v"));
    }
    CHECK(says(chain[1].request.specialisation, "constexpr int d_o_stages = 2;"));
    // The diagonal is a bound of a band.
    CHECK(says(chain[1].request.specialisation, "constexpr bool causal = false;"));
    CHECK(says(chain[1].request.specialisation, "constexpr bool bounded_last_diagonal = true;"));
}

TEST_CASE("a group has no more heads than there are") {
    fresh_driver();
    Runtime runtime(fake_options());
    TileConfig config = kernel_preset("v4");
    for (const int heads : {1, 5, 6, 7, 1024}) {
        config.heads_per_group = heads;
        const auto plan = runtime.backward(problem, config);
        const auto launches = launches_of(*plan, tensors_at(problem, test::tensor_base));
        const auto main = launches.at(1).arguments_as<kernel::MmaResidentArguments>();
        CHECK(main.heads_per_group == (heads < 6 ? heads : 6));
    }
    // The order of the heads is an argument: one kernel serves all.
    TileConfig alone = kernel_preset("v4");
    alone.heads_per_group = 1;
    CHECK(specialisation_of(alone, 1) == specialisation_of(kernel_preset("v4"), 1));
}

TEST_CASE("v5 launches delta and its kernel and a block a ticket") {
    fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem many = problem;
    many.batch = 1000;
    TileConfig config = kernel_preset("v5");
    const auto plan = runtime.backward(many, config);
    const BackwardTensors tensors = tensors_at(many, test::tensor_base, Layout::bshd);
    const auto launches = launches_of(*plan, tensors);
    REQUIRE(launches.size() == 2);
    CHECK(launches[0].kernel == std::string("attention_backward_delta"));
    CHECK(launches[1].kernel == std::string("attention_backward_mma_resident"));
    CHECK(launches[1].shared_bytes == 49456);
    CHECK(launches[1].programmatic_dependent_launch);
    const auto delta = launches[0].arguments_as<kernel::DeltaArguments>();
    const auto main = launches[1].arguments_as<kernel::MmaResidentArguments>();
    const attention::WorkspaceLayout layout(many, config);
    const attention::Rounds rounds(many, config);
    CHECK(launches[1].grid[0] == rounds.tickets());
    CHECK(main.tickets == rounds.tickets());
    CHECK(main.conversion_lag == rounds.conversion_lag);
    CHECK(main.accumulator_heads == rounds.accumulator_heads);
    CHECK(delta.accumulator_heads == rounds.accumulator_heads);
    CHECK(layout.accumulator_heads == static_cast<std::size_t>(rounds.accumulator_heads));
    CHECK(main.d_q == tensors.d_q.data);
    CHECK(main.d_q_strides.seqlen == tensors.d_q.stride_seqlen);
    CHECK(main.counters.tickets == layout.counters(test::workspace_address).tickets);
    CHECK(main.counters.added == delta.counters.added);
    CHECK(main.counters.converted == delta.counters.converted);
}

TEST_CASE("the accumulator of v5 has places for what is between a tile and its conversion") {
    AttentionProblem many = problem;
    many.batch = 1000;
    for (const int heads : {1, 4, 64}) {
        TileConfig config = kernel_preset("v5");
        config.heads_per_group = heads;
        const attention::Rounds rounds(many, config);
        const std::int64_t kv_tiles = 256 / 64;
        CHECK(rounds.tickets_a_round == heads * kv_tiles);
        // A group's last tile has as many others beside it as there are blocks.
        CHECK((rounds.conversion_lag - 1) * rounds.tickets_a_round >= rounds.resident_blocks);
        CHECK(rounds.accumulator_heads % heads == 0);
        CHECK(rounds.accumulator_heads >= (rounds.conversion_lag + 1) * heads);
        CHECK(rounds.accumulator_heads < 3000);
        CHECK(rounds.tickets() >= (3000 / heads + rounds.conversion_lag) * heads * kv_tiles);
        // v4 converts nothing, and has a place for each.
        config.converts_d_q = false;
        const attention::Rounds all(many, config);
        CHECK(all.conversion_lag == 0);
        CHECK(all.accumulator_heads == 3000);
        CHECK(all.tickets() == (3000 + heads - 1) / heads * heads * kv_tiles);
    }
}

TEST_CASE("what a ticket of v5 or wgmma waits for stands in lower tickets whatever the groups") {
    for (const char* preset : {"v5", "wgmma"}) {
        for (const int heads_per_group : {1, 3, 4, 64, 1024}) {
            TileConfig config = kernel_preset(preset);
            config.heads_per_group = heads_per_group;
            for (const std::int64_t kv_tiles : {1, 2, 7, 64, 1000}) {
                for (const std::int64_t heads : {1, 2, 5, 97, 1001, 5000}) {
                    const AttentionProblem sized{.batch = 1,
                                                 .heads = heads,
                                                 .seqlen_q = 64,
                                                 .seqlen_kv = kv_tiles * config.block_kv,
                                                 .head_dim = 64};
                    const attention::Rounds rounds(sized, config);
                    // As Work takes a ticket apart: of a head's tile, and of a share of its dQ.
                    const auto tile_ticket = [&](std::int64_t head, std::int64_t tile) {
                        return head / rounds.group_heads * rounds.tickets_a_round +
                               tile * rounds.group_heads + head % rounds.group_heads;
                    };
                    const auto share_ticket = [&](std::int64_t head, std::int64_t share) {
                        return tile_ticket(head, share) +
                               rounds.conversion_lag * rounds.tickets_a_round;
                    };
                    bool in_order = rounds.accumulator_heads >= 1;
                    for (std::int64_t head = 0; head < heads; ++head) {
                        in_order = in_order &&
                                   tile_ticket(head, kv_tiles - 1) < share_ticket(head, 0) &&
                                   share_ticket(head, kv_tiles - 1) < rounds.tickets();
                        const std::int64_t before = head - rounds.accumulator_heads;
                        if (before >= 0) {
                            in_order = in_order &&
                                       share_ticket(before, kv_tiles - 1) < tile_ticket(head, 0);
                        }
                    }
                    CAPTURE(to_string(config));
                    CAPTURE(to_string(sized));
                    CHECK(in_order);
                }
            }
        }
    }
}

TEST_CASE("the workspace of v4 is LSE, delta and the dQ accumulator, in this order") {
    fresh_driver();
    Runtime runtime(fake_options());
    const attention::WorkspaceLayout layout(problem, kernel_preset("v4"));
    void* const start = test::workspace_address;
    CHECK(layout.negated_lse_log2(start) == start);
    CHECK(layout.negated_delta(start) == layout.negated_lse_log2(start) + rows);
    CHECK(layout.d_q_accumulator_offset == rows * 8);
    CHECK(layout.accumulator_heads == 2 * 3);
    CHECK(layout.bytes == rows * 8 + rows * 128 * 4);
    CHECK(runtime.backward(problem, kernel_preset("v4"))->workspace_bytes() == layout.bytes);
}

TEST_CASE("the chain of v4 is specialised for statistics and dQ in the order of fragments") {
    const TileConfig& v4 = kernel_preset("v4");
    CHECK(says(specialisation_of(v4, 0), "statistics_in_fragment_order = true"));
    CHECK(says(specialisation_of(v4, 0), "counts_progress = false"));
    CHECK(says(specialisation_of(v4, 1), "block_q = 32"));
    CHECK(says(specialisation_of(v4, 1), "block_kv = 64"));
    CHECK(says(specialisation_of(v4, 1), "seqlen_q = 0"));
    CHECK(says(specialisation_of(v4, 1), "shared_bytes = 49448"));
    CHECK(says(specialisation_of(v4, 1), "converts_d_q = false"));
    CHECK(says(specialisation_of(kernel_preset("v5"), 0), "counts_progress = true"));
    CHECK(says(specialisation_of(kernel_preset("v5"), 1), "converts_d_q = true"));
    CHECK(says(specialisation_of(v4, 1), "shared_bytes_per_multiprocessor = 102400"));
    CHECK(says(specialisation_of(v4, 2), "accumulator_in_fragment_order = true"));
    CHECK(says(specialisation_of(kernel_preset("v3"), 0), "statistics_in_fragment_order = false"));
    CHECK(says(specialisation_of(kernel_preset("v3"), 2), "accumulator_in_fragment_order = false"));
    TileConfig constant = v4;
    constant.sequence_lengths = SequenceLengths::compile_time;
    CHECK(says(specialisation_of(constant, 1), "seqlen_q = 160"));
    CHECK(says(specialisation_of(constant, 1), "seqlen_kv = 256"));
}

TEST_CASE("a problem that needs no more than whole tiles says nothing of what others need") {
    for (const char* preset : {"v4", "v5"}) {
        for (const std::size_t kernel : {0, 1}) {
            const std::string text = specialisation_of(kernel_preset(preset), kernel);
            for (const char* option : {"partial_", "bounded_", "grouped_heads", "fp32_gradients",
                                       "accumulates_gradients", "head_dim_"}) {
                CHECK_FALSE(says(text, option));
            }
        }
    }
}

TEST_CASE("of groups of heads and a window and odd sizes the kernels get what they count with") {
    fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem general = problem;
    general.heads = 6;
    general.heads_kv = 3;
    general.seqlen_q = 70;
    general.seqlen_kv = 90;
    general.head_dim = 72;
    general.head_dim_v = 40;
    general.window_left = 20;
    general.window_right = 5;
    general.gradient_type = GradientType::fp32;
    general.accumulate_gradients = true;
    for (const char* preset : {"v4", "v5"}) {
        const TileConfig& config = kernel_preset(preset);
        const auto plan = runtime.backward(general, config);
        const BackwardTensors tensors = tensors_at(general, test::tensor_base);
        const auto launches = launches_of(*plan, tensors);
        const attention::WorkspaceLayout layout(general, config);
        // Three query tiles of 32, two key tiles of 64, in tiles of 128 columns.
        CHECK(layout.rows == 2 * 6 * 96);
        CHECK(layout.bytes ==
              layout.d_q_accumulator_offset + layout.accumulator_heads * 96 * 128 * 4);
        CHECK(layout.accumulator_heads == 2 * 6);
        const auto delta = launches.at(0).arguments_as<kernel::DeltaArguments>();
        CHECK(launches[0].grid[0] == 2 * 6 * 2);
        CHECK(delta.heads == 6);
        CHECK(delta.seqlen_q == 70);
        CHECK(delta.padded_seqlen_q == 96);
        CHECK(delta.accumulator_heads == 2 * 6);
        const auto main = launches.at(1).arguments_as<kernel::MmaResidentArguments>();
        CHECK(main.heads == 3);
        CHECK(main.batch_heads == 2 * 3);
        CHECK(main.heads_per_kv_head == 2);
        CHECK(main.accumulator_heads == 2 * 3);
        CHECK(main.tickets == attention::Rounds(general, config).tickets());
        CHECK(attention::Rounds(general, config).tickets_a_round == 4 * 2);
        // Query 0 stands at key 20.
        CHECK(main.first_diagonal == 0);
        CHECK(main.last_diagonal == 25);
        const auto extents_of = [](const kernel::TensorMap& map) {
            const fault::EncodedMap encoded = decoded(map);
            return std::vector<std::uint64_t>(std::begin(encoded.extents),
                                              std::begin(encoded.extents) + 4);
        };
        CHECK(extents_of(main.q) == std::vector<std::uint64_t>{72, 70, 6, 2});
        CHECK(extents_of(main.k) == std::vector<std::uint64_t>{72, 90, 3, 2});
        CHECK(extents_of(main.v) == std::vector<std::uint64_t>{40, 90, 3, 2});
        CHECK(extents_of(main.d_o) == std::vector<std::uint64_t>{40, 70, 6, 2});
        if (!config.converts_d_q) {
            const auto convert = launches.at(2).arguments_as<kernel::ConvertArguments>();
            CHECK(convert.seqlen_q == 70);
            CHECK(convert.padded_seqlen_q == 96);
        }
        const std::string text =
            attention::backward_chain(general, config, device::target_by_name("sm_120a"))
                .at(1)
                .request.specialisation;
        for (const char* option :
             {"head_dim = 128;", "head_dim_qk = 72;", "head_dim_v = 40;", "causal = false;",
              "partial_query_tiles = true;", "partial_key_tiles = true;",
              "bounded_first_diagonal = true;", "bounded_last_diagonal = true;",
              "grouped_heads = true;", "fp32_gradients = true;", "accumulates_gradients = true;"}) {
            CAPTURE(option);
            CHECK(says(text, option));
        }
    }
}

TEST_CASE("the causal mask of equal lengths in whole tiles has code of its own and no bound") {
    const auto text_of = [](const AttentionProblem& causal) {
        return attention::backward_chain(causal, kernel_preset("v5"),
                                         device::target_by_name("sm_120a"))
            .at(1)
            .request.specialisation;
    };
    AttentionProblem square = problem;
    square.causal = true;
    square.seqlen_q = square.seqlen_kv = 256;
    CHECK(says(text_of(square), "causal = true"));
    CHECK_FALSE(says(text_of(square), "bounded"));
    AttentionProblem window = square;
    window.causal = false;
    window.window_right = 0;
    CHECK(text_of(window) == text_of(square));
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair{256, 320}, {224, 224}}) {
        AttentionProblem other = square;
        other.seqlen_q = seqlen_q;
        other.seqlen_kv = seqlen_kv;
        CHECK(says(text_of(other), "causal = false"));
        CHECK(says(text_of(other), "bounded_last_diagonal = true"));
        CHECK_FALSE(says(text_of(other), "bounded_first_diagonal"));
    }
    AttentionProblem grouped = square;
    grouped.heads_kv = 1;
    CHECK(says(text_of(grouped), "bounded_last_diagonal = true"));
}
