// What a plan asks of the driver: over the fake driver, with kernels compiled by the real NVRTC.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "arguments/attention_backward.h"
#include "attention/workspace.hpp"
#include "backlight/runtime.hpp"
#include "plan_test_support.hpp"
#include "runtime_implementation.hpp"
#include "test_support.hpp"

// --- Counting allocations: the operators hold for the whole test executable ----------------------

namespace {

thread_local std::size_t allocations = 0;

void* counted(std::size_t bytes, std::size_t alignment) {
    ++allocations;
    void* memory =
        alignment <= alignof(std::max_align_t)
            ? std::malloc(bytes == 0 ? 1 : bytes)
            : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}

}  // namespace

// Out of line, or GCC takes the halves of a pair for strangers.
#define BACKLIGHT_KEPT __attribute__((noinline))

BACKLIGHT_KEPT void* operator new(std::size_t bytes) {
    return counted(bytes, 1);
}
BACKLIGHT_KEPT void* operator new[](std::size_t bytes) {
    return counted(bytes, 1);
}
BACKLIGHT_KEPT void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
BACKLIGHT_KEPT void* operator new[](std::size_t bytes, std::align_val_t alignment) {
    return counted(bytes, static_cast<std::size_t>(alignment));
}
BACKLIGHT_KEPT void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted(bytes, 1);
}
BACKLIGHT_KEPT void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
    return counted(bytes, 1);
}
BACKLIGHT_KEPT void operator delete(void* memory) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete[](void* memory) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete[](void* memory, std::size_t) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete(void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete[](void* memory, std::align_val_t) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}
BACKLIGHT_KEPT void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
    std::free(memory);
}

// ------------------------------------------------------------------------------------------------

using namespace backlight;
using fault::EncodedMap;
using fault::Launch;
using test::check_map;
using test::decoded;
using test::fake_options;
using test::fresh_driver;
using test::Layout;
using test::number;
using test::tensors_at;

namespace {

/// Lengths that differ and are no multiple of the 64 rows that delta and convert take a block.
const AttentionProblem problem{.batch = 2,
                               .heads = 3,
                               .seqlen_q = 160,
                               .seqlen_kv = 256,
                               .head_dim = 128,
                               .softmax_scale = 0.25F};

void check_strides(const kernel::Strides& strides, const ConstTensorView& view) {
    CHECK(strides.batch == view.stride_batch);
    CHECK(strides.head == view.stride_head);
    CHECK(strides.seqlen == view.stride_seqlen);
}

void run(const BackwardPlan& plan, const BackwardTensors& tensors, Stream stream = nullptr) {
    plan.run(tensors, test::workspace_address, plan.workspace_bytes(), stream);
}

}  // namespace

TEST_CASE("a run launches delta, main and convert, in that order, with the grids of the problem") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    struct Expected {
        const char* preset;
        unsigned main_threads;
        unsigned main_shared_bytes;
    };
    for (const Expected& expected :
         {Expected{"v1", 512, 81936}, {"v2", 256, 81936}, {"v3", 256, 73744}}) {
        CAPTURE(expected.preset);
        AttentionProblem shape = problem;
        shape.seqlen_q = 192;  // a multiple of 64, for v1 and v2
        const auto plan = runtime.backward(shape, kernel_preset(expected.preset));
        driver.fake_reset();
        const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x5000});
        run(*plan, tensors_at(shape, test::tensor_base), stream);
        const std::vector<Launch> launches = driver.launches();
        REQUIRE(launches.size() == 3);
        CHECK(launches[0].kernel == std::string("attention_backward_delta"));
        CHECK(launches[1].kernel == std::string("attention_backward_mma"));
        CHECK(launches[2].kernel == std::string("attention_backward_convert"));
        CHECK(launches[0].grid[0] == 2 * 3 * 3);
        CHECK(launches[1].grid[0] == 2 * 3 * 4);
        CHECK(launches[2].grid[0] == 2 * 3 * 3);
        CHECK(launches[0].block[0] == 256);
        CHECK(launches[1].block[0] == expected.main_threads);
        CHECK(launches[2].block[0] == 256);
        CHECK(launches[0].shared_bytes == 0);
        CHECK(launches[1].shared_bytes == expected.main_shared_bytes);
        CHECK(launches[2].shared_bytes == 0);
        for (const Launch& launch : launches) {
            CHECK(launch.grid[1] == 1);
            CHECK(launch.grid[2] == 1);
            CHECK(launch.block[1] == 1);
            CHECK(launch.block[2] == 1);
            CHECK(launch.stream == stream);
        }
    }
}

TEST_CASE("a part of 64 rows gets a block of delta and convert of its own") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v4"));  // 160 queries: 2.5 blocks
    run(*plan, tensors_at(problem, test::tensor_base));
    const std::vector<Launch> launches = driver.launches();
    REQUIRE(launches.size() == 3);
    CHECK(launches[0].grid[0] == 2 * 3 * 3);
    CHECK(launches[2].grid[0] == 2 * 3 * 3);
}

namespace {

/// Of which wgmma takes whole tiles.
const AttentionProblem whole_tiles{.batch = 2,
                                   .heads = 3,
                                   .seqlen_q = 192,
                                   .seqlen_kv = 256,
                                   .head_dim = 128,
                                   .softmax_scale = 0.25F};

}  // namespace

TEST_CASE("wgmma launches its chain with blocks of 512 threads and the shared memory they need") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(whole_tiles, kernel_preset("wgmma"));
    driver.fake_reset();
    const auto stream = reinterpret_cast<Stream>(std::uintptr_t{0x5000});
    run(*plan, tensors_at(whole_tiles, test::tensor_base), stream);
    const std::vector<Launch> launches = driver.launches();
    REQUIRE(launches.size() == plan->resources().size());
    for (std::size_t i = 0; i < launches.size(); ++i) {
        CHECK(launches[i].kernel == plan->resources()[i].kernel);
        CHECK(launches[i].stream == stream);
    }
    CHECK(launches[0].kernel == std::string("attention_backward_delta"));
    CHECK(launches[1].kernel == std::string("attention_backward_wgmma"));
    CHECK(launches[0].grid[0] == 2 * 3 * 3);
    // Blocks take tickets until there are none left: never more than an H200 has multiprocessors.
    CHECK(launches[1].grid[0] > 0);
    CHECK(launches[1].grid[0] <= 132);
    CHECK(launches[1].arguments_as<kernel::WgmmaArguments>().tickets >= 2 * 3 * 2);
    CHECK(launches[1].block[0] == 512);
    CHECK(launches[1].shared_bytes == shared_memory_bytes(kernel_preset("wgmma"), 128));
    for (std::size_t i = 0; i < launches.size(); ++i) {
        CHECK(launches[i].programmatic_dependent_launch == (i > 0));
    }
}

TEST_CASE("wgmma gets maps of all but O, of halves of tiles of dK and dV, and its counters") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(whole_tiles, kernel_preset("wgmma"));
    for (const Layout layout : {Layout::bhsd, Layout::bshd}) {
        driver.fake_reset();
        BackwardTensors tensors = tensors_at(whole_tiles, test::tensor_base, layout);
        run(*plan, tensors);
        const std::vector<Launch> launches = driver.launches();
        REQUIRE(launches.size() >= 2);
        const auto delta = launches[0].arguments_as<kernel::DeltaArguments>();
        const auto main = launches[1].arguments_as<kernel::WgmmaArguments>();
        check_map(decoded(main.q), tensors.q, 192, 64);
        check_map(decoded(main.d_o), tensors.d_o, 192, 64);
        check_map(decoded(main.k), tensors.k, 256, 128);
        check_map(decoded(main.v), tensors.v, 256, 128);
        check_map(decoded(main.d_k), tensors.d_k, 256, 64);
        check_map(decoded(main.d_v), tensors.d_v, 256, 64);
        check_map(decoded(main.d_q), tensors.d_q, 192, 64);

        const attention::WorkspaceLayout workspace(whole_tiles, kernel_preset("wgmma"));
        CHECK(main.negated_lse_log2 == workspace.negated_lse_log2(test::workspace_address));
        CHECK(main.negated_delta == workspace.negated_delta(test::workspace_address));
        CHECK(main.d_q_accumulator == workspace.d_q_accumulator(test::workspace_address));
        CHECK(main.counters.tickets == workspace.counters(test::workspace_address).tickets);
        CHECK(delta.negated_lse_log2 == main.negated_lse_log2);
        CHECK(delta.negated_delta == main.negated_delta);
        CHECK(delta.counters.tickets == main.counters.tickets);
        CHECK(main.softmax_scale == 0.25F);
        CHECK(main.softmax_scale_log2 == doctest::Approx(0.25 * 1.4426950408889634));
        CHECK(main.heads == 3);
        CHECK(main.batch_heads == 6);
        CHECK(main.seqlen_q == 192);
        CHECK(main.seqlen_kv == 256);
    }
}

TEST_CASE("the workspace of wgmma is LSE, delta, counters and the dQ accumulator, in this order") {
    fresh_driver();
    Runtime runtime(fake_options());
    const std::size_t rows = 2 * 3 * 192;
    const attention::WorkspaceLayout layout(whole_tiles, kernel_preset("wgmma"));
    void* const start = test::workspace_address;
    CHECK(layout.negated_lse_log2(start) == start);
    CHECK(layout.negated_delta(start) == layout.negated_lse_log2(start) + rows);
    CHECK(layout.counters_offset == rows * 8);
    CHECK(layout.counters_offset % attention::WorkspaceLayout::alignment == 0);
    // 256 bytes hold the counters of six heads.
    CHECK(layout.d_q_accumulator_offset == rows * 8 + 256);
    CHECK(layout.bytes == rows * 8 + 256 + rows * 128 * 4);
    const auto plan = runtime.backward(whole_tiles, kernel_preset("wgmma"));
    CHECK(plan->workspace_bytes() == layout.bytes);
    // mma has no counters.
    AttentionProblem same = whole_tiles;
    CHECK(runtime.backward(same, kernel_preset("v2"))->workspace_bytes() ==
          rows * 8 + rows * 128 * 4);
    // Many heads: the counters take more than the alignment.
    AttentionProblem many = whole_tiles;
    many.heads = 1024;
    const attention::WorkspaceLayout large(many, kernel_preset("wgmma"));
    CHECK(large.d_q_accumulator_offset > large.counters_offset + 2 * 1024 * sizeof(unsigned));
}

TEST_CASE("the dQ accumulator of wgmma has room for some heads only where there are many") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const TileConfig& config = kernel_preset("wgmma");
    AttentionProblem many = whole_tiles;
    many.seqlen_q = 4096;
    many.seqlen_kv = 4096;
    std::size_t places = 0;
    for (const std::int64_t batch : {8, 16}) {
        many.batch = batch;
        many.heads = 16;
        const attention::WorkspaceLayout layout(many, config);
        CHECK(layout.accumulator_heads < layout.batch_heads);
        // Whole groups, so that a head is in the same position of its group as the one before it.
        CHECK(layout.accumulator_heads % static_cast<std::size_t>(config.heads_per_group) == 0);
        CHECK(layout.bytes == layout.d_q_accumulator_offset +
                                  layout.accumulator_heads * 4096 * 128 * sizeof(float));
        // As many whatever the batch: it is the blocks under way that need them.
        CHECK((places == 0 || places == layout.accumulator_heads));
        places = layout.accumulator_heads;

        const auto plan = runtime.backward(many, config);
        CHECK(plan->workspace_bytes() == layout.bytes);
        driver.fake_reset();
        run(*plan, tensors_at(many, test::tensor_base));
        const std::vector<Launch> launches = driver.launches();
        REQUIRE(launches.size() == 2);
        const auto delta = launches[0].arguments_as<kernel::DeltaArguments>();
        const auto main = launches[1].arguments_as<kernel::WgmmaArguments>();
        CHECK(delta.accumulator_heads == static_cast<int>(places));
        CHECK(main.accumulator_heads == static_cast<int>(places));
        // A place is converted in an earlier round than that in which its next head begins.
        const int groups = main.accumulator_heads / config.heads_per_group;
        CHECK(main.conversion_lag >= 1);
        CHECK(groups > main.conversion_lag);
    }
}

TEST_CASE("a plan of wgmma whose tiles have no rows is refused, not divided by") {
    fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = [&](const AttentionProblem& problem, const TileConfig& config) {
        return [&runtime, problem, config] { runtime.backward(problem, config); };
    };
    TileConfig config = kernel_preset("wgmma");
    config.block_kv = 0;
    test::check_refused(ErrorCode::invalid_argument, {"block_kv is 0"}, plan(whole_tiles, config));
    config = kernel_preset("wgmma");
    config.heads_per_group = 0;
    test::check_refused(ErrorCode::invalid_argument, {"heads_per_group is 0"},
                        plan(whole_tiles, config));
}

TEST_CASE("a repeated run of wgmma encodes no map and another dK or dV does") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(whole_tiles, kernel_preset("wgmma"));
    BackwardTensors tensors = tensors_at(whole_tiles, test::tensor_base);
    run(*plan, tensors);
    const std::size_t first = driver.fake_encode_count();
    CHECK(first >= 6);
    run(*plan, tensors);
    CHECK(driver.fake_encode_count() == first);
    for (TensorView BackwardTensors::*output : {&BackwardTensors::d_k, &BackwardTensors::d_v}) {
        (tensors.*output).data = static_cast<char*>((tensors.*output).data) + 4096;
    }
    run(*plan, tensors);
    CHECK(driver.fake_encode_count() == first + 2);
    const auto launches = driver.launches();
    REQUIRE(launches.size() == 3 * plan->resources().size());
    const auto main =
        launches[2 * plan->resources().size() + 1].arguments_as<kernel::WgmmaArguments>();
    CHECK(decoded(main.d_k).address == number(tensors.d_k.data));
    CHECK(decoded(main.d_v).address == number(tensors.d_v.data));
}

TEST_CASE("plans of wgmma that differ in a field of its own are different plans") {
    fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem shallow = whole_tiles;
    shallow.head_dim = 64;
    const auto plan = runtime.backward(shallow, kernel_preset("wgmma"));
    CHECK(runtime.backward(shallow, kernel_preset("wgmma")) == plan);
    TileConfig config = kernel_preset("wgmma");
    config.heads_per_group = 8;
    CHECK(runtime.backward(shallow, config) != plan);
}

TEST_CASE(
    "main and convert may start early where the configuration says so, and delta never does") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    for (const bool early : {true, false}) {
        TileConfig config = kernel_preset("v3");
        config.programmatic_dependent_launch = early;
        driver.fake_reset();
        run(*runtime.backward(problem, config), tensors_at(problem, test::tensor_base));
        const std::vector<Launch> launches = driver.launches();
        REQUIRE(launches.size() == 3);
        CHECK_FALSE(launches[0].programmatic_dependent_launch);
        CHECK(launches[1].programmatic_dependent_launch == early);
        CHECK(launches[2].programmatic_dependent_launch == early);
    }
}

TEST_CASE("the workspace is the row statistics, up to 256 bytes, and the fp32 dQ accumulator") {
    fresh_driver();
    Runtime runtime(fake_options());
    const std::size_t rows = 2 * 3 * 160;
    CHECK(runtime.backward(problem, kernel_preset("v3"))->workspace_bytes() ==
          rows * 8 + rows * 128 * 4);
    // 160 rows of statistics are 1280 bytes, 32 rows are 256: the rounding shows with 96 rows.
    const AttentionProblem small{.seqlen_q = 32, .seqlen_kv = 64, .head_dim = 64};
    CHECK(runtime.backward(small, kernel_preset("v3"))->workspace_bytes() == 256 + 32 * 64 * 4);
    const AttentionProblem rounded{.heads = 3, .seqlen_q = 32, .seqlen_kv = 64, .head_dim = 64};
    CHECK(runtime.backward(rounded, kernel_preset("v3"))->workspace_bytes() == 768 + 96 * 64 * 4);
    TileConfig narrow = kernel_preset("v3");
    narrow.block_q = 16;
    narrow.warps = 4;
    const AttentionProblem odd{.seqlen_q = 16, .seqlen_kv = 64, .head_dim = 64};
    CHECK(runtime.backward(odd, narrow)->workspace_bytes() == 256 + 16 * 64 * 4);
}

TEST_CASE(
    "the kernels get the caller's pointers, strides and scale, and the parts of the workspace") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v3"));
    for (const Layout layout : {Layout::bhsd, Layout::bshd}) {
        driver.fake_reset();
        BackwardTensors tensors = tensors_at(problem, test::tensor_base, layout);
        tensors.lse.stride_batch = 1000;
        tensors.lse.stride_head = 200;
        run(*plan, tensors);
        const std::vector<Launch> launches = driver.launches();
        REQUIRE(launches.size() == 3);
        const auto delta = launches[0].arguments_as<kernel::DeltaArguments>();
        const auto main = launches[1].arguments_as<kernel::MmaArguments>();
        const auto convert = launches[2].arguments_as<kernel::ConvertArguments>();
        const void* const accumulator =
            static_cast<std::byte*>(test::workspace_address) + 2 * 3 * 160 * 8;

        CHECK(delta.o == tensors.o.data);
        CHECK(delta.d_o == tensors.d_o.data);
        CHECK(delta.lse == tensors.lse.data);
        check_strides(delta.o_strides, tensors.o);
        check_strides(delta.d_o_strides, tensors.d_o);
        CHECK(delta.lse_stride_batch == 1000);
        CHECK(delta.lse_stride_head == 200);
        CHECK(delta.row_statistics == test::workspace_address);
        CHECK(delta.d_q_accumulator == accumulator);
        CHECK(delta.accumulator_heads == 2 * 3);
        CHECK(delta.heads == 3);
        CHECK(delta.seqlen_q == 160);

        check_map(decoded(main.q), tensors.q, 160, 32);
        check_map(decoded(main.k), tensors.k, 256, 64);
        check_map(decoded(main.v), tensors.v, 256, 64);
        check_map(decoded(main.d_o), tensors.d_o, 160, 32);
        CHECK(main.row_statistics == test::workspace_address);
        CHECK(main.d_q_accumulator == accumulator);
        CHECK(main.d_k == tensors.d_k.data);
        CHECK(main.d_v == tensors.d_v.data);
        check_strides(main.d_k_strides, tensors.d_k);
        check_strides(main.d_v_strides, tensors.d_v);
        CHECK(main.softmax_scale == 0.25F);
        CHECK(main.softmax_scale_log2 == doctest::Approx(0.25 * 1.4426950408889634));
        CHECK(main.heads == 3);
        CHECK(main.seqlen_q == 160);
        CHECK(main.seqlen_kv == 256);

        CHECK(convert.d_q_accumulator == accumulator);
        CHECK(convert.d_q == tensors.d_q.data);
        check_strides(convert.d_q_strides, tensors.d_q);
        CHECK(convert.softmax_scale == 0.25F);
        CHECK(convert.heads == 3);
        CHECK(convert.seqlen_q == 160);
    }
}

TEST_CASE("slices of a packed QKV tensor reach the tensor maps with the packed strides, in bytes") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem packed_problem = problem;
    packed_problem.seqlen_q = 256;
    const auto plan = runtime.backward(packed_problem, kernel_preset("v3"));
    // (batch, seqlen, 3, heads, head_dim)
    BackwardTensors tensors = tensors_at(packed_problem, test::tensor_base);
    const std::int64_t row = 3 * 3 * 128;
    const auto slice = [&](std::uintptr_t base, std::uintptr_t part) {
        return TensorView{reinterpret_cast<void*>(base + part * 3 * 128 * 2), 256 * row, 128, row};
    };
    tensors.q = slice(0x10000000, 0);
    tensors.k = slice(0x10000000, 1);
    tensors.v = slice(0x10000000, 2);
    tensors.d_q = slice(0x20000000, 0);
    tensors.d_k = slice(0x20000000, 1);
    tensors.d_v = slice(0x20000000, 2);
    run(*plan, tensors);
    std::map<std::uint64_t, EncodedMap> by_address;
    for (const EncodedMap& map : driver.encodes()) {
        by_address[map.address] = map;
    }
    REQUIRE(by_address.size() == 4);
    for (const ConstTensorView& view : {tensors.q, tensors.k, tensors.v}) {
        REQUIRE(by_address.count(number(view.data)) == 1);
        const EncodedMap& map = by_address[number(view.data)];
        CHECK(map.stride_bytes[0] == 3 * 3 * 128 * 2);
        CHECK(map.stride_bytes[1] == 128 * 2);
        CHECK(map.stride_bytes[2] == 256 * 3 * 3 * 128 * 2);
    }
    const auto main = driver.launches().at(1).arguments_as<kernel::MmaArguments>();
    CHECK(main.d_k == tensors.d_k.data);
    check_strides(main.d_k_strides, tensors.d_k);
}

TEST_CASE("a stride over a single index may be zero, and TMA still gets one that it takes") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const AttentionProblem single{.seqlen_q = 64, .seqlen_kv = 64, .head_dim = 64, .causal = true};
    BackwardTensors tensors = tensors_at(single, test::tensor_base);
    for (ConstTensorView* view : {&tensors.q, &tensors.k, &tensors.v, &tensors.o, &tensors.d_o}) {
        view->stride_batch = view->stride_head = 0;
    }
    for (TensorView* view : {&tensors.d_q, &tensors.d_k, &tensors.d_v}) {
        view->stride_batch = view->stride_head = 0;
    }
    tensors.lse.stride_batch = tensors.lse.stride_head = 0;
    run(*runtime.backward(single, kernel_preset("v4")), tensors);
    CHECK(driver.fake_launch_count() == 3);
    REQUIRE(driver.encodes().size() == 4);
    for (const EncodedMap& map : driver.encodes()) {
        CHECK(map.stride_bytes[0] == 128);
        for (const std::uint64_t stride : map.stride_bytes) {
            CHECK(stride > 0);
            CHECK(stride % 16 == 0);
        }
    }
}

TEST_CASE("fp16 problems get fp16 tensor maps") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem half = problem;
    half.dtype = DataType::fp16;
    run(*runtime.backward(half, kernel_preset("v4")), tensors_at(half, test::tensor_base));
    REQUIRE(driver.encodes().size() == 4);
    for (const EncodedMap& map : driver.encodes()) {
        CHECK(map.data_type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
    }
}

TEST_CASE("a repeated run encodes no tensor map, and other pointers or strides do") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v3"));
    const auto expect_encodes = [&](std::size_t count) {
        CHECK(driver.fake_encode_count() == count);
        CHECK(runtime.counters().tensor_maps_encoded == count);
    };
    BackwardTensors tensors = tensors_at(problem, test::tensor_base);
    run(*plan, tensors);
    expect_encodes(4);
    for (int i = 0; i < 10; ++i) {
        run(*plan, tensors);
    }
    expect_encodes(4);
    // What no map describes does not matter.
    tensors.d_q.data = static_cast<char*>(tensors.d_q.data) + 4096;
    tensors.o.data = static_cast<const char*>(tensors.o.data) + 4096;
    run(*plan, tensors);
    expect_encodes(4);
    tensors.k.data = static_cast<const char*>(tensors.k.data) + 4096;
    run(*plan, tensors);
    expect_encodes(5);
    tensors.q.stride_seqlen += 8;
    run(*plan, tensors);
    expect_encodes(6);
    const auto launches = driver.launches();
    const auto main = launches.at(launches.size() - 2).arguments_as<kernel::MmaArguments>();
    CHECK(decoded(main.k).address == number(tensors.k.data));
    CHECK(decoded(main.q).stride_bytes[0] == 136 * 2);
    // Plans share none: their boxes and extents may differ.
    AttentionProblem other = problem;
    other.seqlen_kv = 512;
    run(*runtime.backward(other, kernel_preset("v3")), tensors_at(other, test::tensor_base));
    expect_encodes(10);
}

TEST_CASE("the same problem and configuration give the same plan, any difference another") {
    fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem);
    CHECK(runtime.backward(problem) == plan);
    CHECK(runtime.backward(problem, plan->config()) == plan);
    AttentionProblem other = problem;
    other.batch = 3;
    CHECK(runtime.backward(other) != plan);
    TileConfig config = plan->config();
    config.programmatic_dependent_launch = false;
    CHECK(runtime.backward(problem, config) != plan);
    CHECK(plan->problem() == problem);
    CHECK(plan->config() == default_config(problem, device::target_by_name("sm_90a")));
}

TEST_CASE("a plan tells the resources of its three kernels in launch order") {
    fresh_driver();
    Runtime runtime(fake_options());
    const auto resources = runtime.backward(problem, kernel_preset("v3"))->resources();
    REQUIRE(resources.size() == 3);
    CHECK(resources[0].kernel == "attention_backward_delta");
    CHECK(resources[1].kernel == "attention_backward_mma");
    CHECK(resources[2].kernel == "attention_backward_convert");
    CHECK(resources[1].shared_bytes == 73744);
    CHECK(resources[1].threads == 256);
    for (const KernelResources& kernel : resources) {
        CHECK(kernel.target == "sm_90a");
        CHECK(kernel.registers > 0);
        CHECK(kernel.spill_store_bytes == 0);
        CHECK(kernel.blocks_per_multiprocessor > 0);
        CHECK((kernel.compile_milliseconds > 0) == !kernel.cached);
    }
}

TEST_CASE("a second Runtime with the same cache directory compiles nothing") {
    fresh_driver();
    const test::TemporaryDirectory cubins;
    RuntimeOptions options = fake_options();
    options.cache_directory = cubins.path();
    Runtime first(options);
    for (const auto& kernel : first.backward(problem, kernel_preset("v3"))->resources()) {
        CHECK_FALSE(kernel.cached);
    }
    CHECK(first.counters().compiles == 3);
    CHECK(first.counters().layer_hits() == 0);
    Runtime second(options);
    for (const auto& kernel : second.backward(problem, kernel_preset("v3"))->resources()) {
        CHECK(kernel.cached);
    }
    CHECK(second.counters().compiles == 0);
    CHECK(second.counters().layer_hits() == 3);
    CHECK(second.counters().memory_hits == 0);
    // Another length: another plan of the same three kernels.
    AttentionProblem longer = problem;
    longer.seqlen_q = longer.seqlen_kv = 1024;
    second.backward(longer, kernel_preset("v3"));
    CHECK(second.counters().compiles == 0);
    CHECK(second.counters().layer_hits() == 3);
    CHECK(second.counters().memory_hits == 3);
}

TEST_CASE(
    "threads that ask for the same plan at the same time compile once and get the same plan") {
    fresh_driver();
    RuntimeOptions options = fake_options();
    options.disable_disk_cache = true;
    Runtime runtime(options);
    std::vector<std::shared_ptr<const BackwardPlan>> plans(4);
    std::vector<std::thread> threads;
    for (auto& plan : plans) {
        threads.emplace_back([&] { plan = runtime.backward(problem, kernel_preset("v4")); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const auto& plan : plans) {
        CHECK(plan != nullptr);
        CHECK(plan == plans.front());
    }
    CHECK(runtime.counters().compiles == 3);
}

TEST_CASE(
    "shared memory is reserved on every device of the same compute capability, and no other") {
    auto& driver = fresh_driver();
    driver.fake_set_device_count(4);
    driver.fake_set_compute_capability_of(1, 12, 0);
    driver.fake_set_compute_capability_of(3, 8, 0);
    Runtime runtime(fake_options());
    runtime.backward(problem, kernel_preset("v3"));
    std::vector<CUdevice> devices;
    for (const fault::AttributeSetting& setting : driver.attributes()) {
        if (setting.kernel == std::string("attention_backward_mma") &&
            setting.attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
            CHECK(setting.value == 73744);
            devices.push_back(setting.device);
        }
    }
    CHECK(devices == std::vector<CUdevice>{0, 2});
}

TEST_CASE("kernels are loaded into the current context at once, where there is one") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    driver.fake_fail_next("cuKernelGetFunction", CUDA_ERROR_OUT_OF_MEMORY);
    CHECK_NOTHROW(runtime.backward(problem));  // No context: nothing to load into.
    driver.fake_set_current_context(true);
    AttentionProblem other = problem;
    other.batch = 1;
    test::check_refused(ErrorCode::driver_failed,
                        {"CUDA_ERROR_OUT_OF_MEMORY", "attention_backward_delta"},
                        [&] { runtime.backward(other); });
    CHECK_NOTHROW(runtime.backward(other));
}

TEST_CASE("a plan outlives its Runtime, and the last owner unloads the kernels") {
    auto& driver = fresh_driver();
    const std::size_t loaded_before = driver.fake_loaded_library_count();
    std::shared_ptr<const BackwardPlan> plan;
    {
        Runtime runtime(fake_options());
        Runtime moved = std::move(runtime);
        plan = moved.backward(problem, kernel_preset("v4"));
    }
    CHECK(driver.fake_loaded_library_count() == loaded_before + 3);
    run(*plan, tensors_at(problem, test::tensor_base));
    CHECK(driver.fake_launch_count() == 3);
    plan.reset();
    CHECK(driver.fake_loaded_library_count() == loaded_before);
}

TEST_CASE("a run allocates no host memory, whether its maps are known or new") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v4"));
    BackwardTensors tensors = tensors_at(problem, test::tensor_base);
    run(*plan, tensors);
    driver.fake_set_recording(false);

    const std::size_t before = allocations;
    for (int i = 0; i < 100; ++i) {
        run(*plan, tensors);
    }
    const std::size_t after_repeats = allocations;
    for (int i = 0; i < 100; ++i) {
        tensors.q.data = static_cast<const char*>(tensors.q.data) + 4096;
        run(*plan, tensors);
    }
    const std::size_t after_new_maps = allocations;
    CHECK(after_repeats == before);
    CHECK(after_new_maps == before);
    CHECK(driver.fake_launch_count() == 3 * 201);

    // The counter counts.
    const auto something = std::make_unique<int>(1);
    CHECK(allocations > after_new_maps);
}

TEST_CASE("eight threads on one plan, each with pointers of its own: every launch gets its maps") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem, kernel_preset("v3"));
    constexpr std::uintptr_t thread_count = 8;
    constexpr std::uintptr_t runs = 1000;
    constexpr std::uintptr_t sets = 7;  // 8 · 7 · 4 maps over 64 slots: hits and displacements
    std::vector<std::thread> threads;
    for (std::uintptr_t thread = 0; thread < thread_count; ++thread) {
        threads.emplace_back([&, thread] {
            for (std::uintptr_t i = 0; i < runs; ++i) {
                // In phases, so that maps are also found again.
                const std::uintptr_t set = (thread * sets + i / 16 % sets) + 1;
                const auto stream = reinterpret_cast<Stream>((thread + 1) << 8U);
                run(*plan, tensors_at(problem, set << 32U), stream);
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    const std::vector<Launch> launches = driver.launches();
    REQUIRE(launches.size() == thread_count * runs * 3);
    std::size_t mains = 0;
    std::size_t wrong = 0;
    std::map<CUstream, std::string> last;
    for (const Launch& launch : launches) {
        // Within a stream the three kernels follow each other, whatever other threads do.
        const std::string kernel = launch.kernel;
        std::string& before = last[launch.stream];
        const bool ordered =
            (kernel == "attention_backward_delta" &&
             (before.empty() || before == "attention_backward_convert")) ||
            (kernel == "attention_backward_mma" && before == "attention_backward_delta") ||
            (kernel == "attention_backward_convert" && before == "attention_backward_mma");
        wrong += ordered ? 0 : 1;
        before = kernel;
        if (kernel != "attention_backward_mma") {
            continue;
        }
        ++mains;
        const auto arguments = launch.arguments_as<kernel::MmaArguments>();
        const std::uintptr_t base = number(arguments.d_k) - 7 * test::tensor_spacing;
        const BackwardTensors tensors = tensors_at(problem, base);
        wrong += arguments.d_v == tensors.d_v.data ? 0 : 1;
        wrong += decoded(arguments.q).address == number(tensors.q.data) ? 0 : 1;
        wrong += decoded(arguments.k).address == number(tensors.k.data) ? 0 : 1;
        wrong += decoded(arguments.v).address == number(tensors.v.data) ? 0 : 1;
        wrong += decoded(arguments.d_o).address == number(tensors.d_o.data) ? 0 : 1;
        wrong += decoded(arguments.q).box[1] == 32 && decoded(arguments.k).box[1] == 64 ? 0 : 1;
    }
    CHECK(mains == thread_count * runs);
    CHECK(wrong == 0);
    // Some maps were found again, and some were displaced.
    CHECK(driver.fake_encode_count() < thread_count * runs * 4);
    CHECK(driver.fake_encode_count() > thread_count * sets * 4);
    CHECK(runtime.counters().tensor_maps_encoded == driver.fake_encode_count());
}
