// What the tools put around a device, over the fake driver.

#include "session/session.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "attention/workspace.hpp"
#include "runtime_implementation.hpp"
#include "session/device_buffer.hpp"
#include "session/device_choice.hpp"
#include "session/gpu.hpp"
#include "test_support.hpp"
#include "tuning/search_space.hpp"
#include "verify.hpp"
#include "verify_problems.hpp"
#include "verify_table.hpp"

using namespace backlight;
using namespace backlight::tool;
using emulation::GridOrder;
using test::check_refused;
using test::fake_options;
using test::fresh_driver;

TEST_CASE("device memory keeps what is copied into it at any offset and fills every byte") {
    fresh_driver();
    const Gpu gpu(fake_options());
    std::vector<std::uint16_t> values(100);
    std::iota(values.begin(), values.end(), std::uint16_t{7});
    DeviceBuffer buffer(gpu, values.size() * sizeof(std::uint16_t));
    buffer.upload(values);
    CHECK(buffer.download_all<std::uint16_t>() == values);

    constexpr std::array part = {std::byte{1}, std::byte{2}};
    buffer.upload(part, 50);
    std::array<std::byte, 2> back{};
    buffer.download(back, 50);
    CHECK(back == part);
    CHECK(buffer.download_all<std::uint16_t>().front() == values.front());

    DeviceBuffer moved(std::move(buffer));
    moved.fill(0xff, gpu.stream());
    gpu.synchronise();
    CHECK(moved.download_all<std::uint16_t>() == std::vector<std::uint16_t>(100, 0xffff));
}

TEST_CASE("an upload waits for its copy and device memory reports the driver's refusals") {
    fault::FakeDriver& driver = fresh_driver();
    const Gpu gpu(fake_options());
    DeviceBuffer buffer(gpu, 4);
    constexpr std::array<std::byte, 4> bytes{};
    std::array<std::byte, 4> back{};
    const auto refused = [&](const char* symbol, std::string_view fragment, auto call) {
        driver.fake_fail_next(symbol, CUDA_ERROR_OUT_OF_MEMORY);
        check_refused(ErrorCode::driver_failed, {"CUDA_ERROR_OUT_OF_MEMORY", fragment}, call);
    };
    refused("cuMemcpyHtoD_v2", "copy to device", [&] { buffer.upload(bytes); });
    refused("cuCtxSynchronize", "wait for a copy", [&] { buffer.upload(bytes); });
    refused("cuMemcpyDtoH_v2", "copy from device", [&] { buffer.download(back); });
    refused("cuMemsetD8Async", "fill", [&] { buffer.fill(0, gpu.stream()); });
    refused("cuMemAlloc_v2", "allocate 12345 bytes", [&] { const DeviceBuffer more(gpu, 12345); });
    refused("cuStreamSynchronize", "synchronise", [&] { gpu.synchronise(); });
}

TEST_CASE("a Runtime takes a device and a compiler that were made before it") {
    fresh_driver();
    const RuntimeOptions options = fake_options();
    const auto device =
        std::make_shared<device::CudaDevice>(device::open_driver(options.driver_path), 0);
    const auto implementation = std::make_shared<Runtime::Implementation>(
        device, compiler::KernelStoreOptions{.nvrtc_path = options.nvrtc_path,
                                             .cache_directory = options.cache_directory});
    Session session{Runtime(implementation)};
    CHECK(&session.device() == device.get());
    CHECK(session.stream() == nullptr);
    const AttentionProblem problem{
        .batch = 2, .heads = 3, .seqlen_q = 128, .seqlen_kv = 128, .head_dim = 128, .causal = true};
    CHECK(session.runtime().backward(problem) != nullptr);
}

TEST_CASE("a session on a number is one on that CUDA device") {
    fault::FakeDriver& driver = fresh_driver();
    driver.fake_set_device_count(2);
    const test::Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    CHECK(open_session(parse_device("1"))->runtime().device_name() == "Fake device 1");
    check_refused(ErrorCode::device_not_found, {"device is -1"},
                  [] { open_session(parse_device("-1")); });
    CHECK(parse_device("emulated").emulation.has_value());
    CHECK(parse_device("emulated").emulation->seed == 1);
    for (const GridOrder order : {GridOrder::ascending, GridOrder::descending, GridOrder::random}) {
        CHECK(parse_grid_order(to_string(order)) == order);
    }
}

TEST_CASE("a session without a driver is refused with the device that needs none") {
    const test::Environment driver_path("BACKLIGHT_DRIVER_PATH", "/nonexistent/libcuda.so.1");
    check_refused(ErrorCode::driver_not_found, {"/nonexistent/libcuda.so.1", "--device emulated"},
                  [] { open_session(parse_device("0")); });
}

TEST_CASE("the line of a kernel that faulted has no figures and says where it faulted") {
    const ProblemReport right{.problem = {},
                              .kernel = "v3",
                              .tensors = {{.tensor = "dQ", .accuracy = {.relative_l2 = 1e-3}},
                                          {.tensor = "dK", .accuracy = {.relative_l2 = 2e-3}},
                                          {.tensor = "dV", .accuracy = {.relative_l2 = 3e-3}}},
                              .failures = {}};
    ProblemReport faulted = right;
    faulted.tensors.clear();
    faulted.failures = {"race"};
    const ProblemAxes axes{.head_dim = 64, .causal = true};
    KernelSummary summary;
    summary.add(right);
    const std::string figures = summary.line("small normal", "v3", axes);
    CHECK(figures.find("1.00e-03  2.00e-03  3.00e-03  0.00e+00     ok\n") != std::string::npos);
    CHECK(figures.size() == table_heading().size());

    summary.add(faulted);
    const std::string line = summary.line("small normal", "v3", axes);
    CHECK(line.find("the kernel faulted in 1 of 2  1 bad\n") != std::string::npos);
    CHECK(line.find("nan") == std::string::npos);
    CHECK(line.size() == figures.size());
    CHECK(summary.problems() == 2);
    CHECK(summary.failed() == 1);
}

TEST_CASE("the line of a kernel tells of a window whether or not there is a causal mask") {
    const auto mask_of = [](bool causal, const ProblemFeatures& features) {
        const std::string line = KernelSummary().line(
            "strides", "v4", {.head_dim = 40, .causal = causal, .features = features});
        CHECK(line.size() == table_heading().size());
        const std::size_t begin = table_heading().find("mask");
        return line.substr(begin, line.find(" bf16") - begin);
    };
    CHECK(mask_of(false, {}) == "full         ");
    CHECK(mask_of(true, {}) == "causal       ");
    CHECK(mask_of(false, {.window_left = 5}) == "window       ");
    CHECK(mask_of(false, {.window_right = 0}) == "window       ");
    CHECK(mask_of(true, {.window_left = 5}) == "causal window");
}

TEST_CASE("the replay of a verification is its own command line") {
    VerifyOptions options;
    options.device = parse_device("emulated");
    CHECK(replay_command(options) ==
          "backlight verify --device emulated --seed 1 --grid-order random");
    options.device.emulation->seed = 42;
    options.device.emulation->grid_order = GridOrder::descending;
    options.quick = true;
    options.kernels = {"v1", "v3"};
    options.tiles = {"32,64,4,2"};
    options.head_dims = {64};
    options.dtypes = {DataType::fp16};
    options.repeats = 5;
    CHECK(replay_command(options) ==
          "backlight verify --device emulated --seed 42 --grid-order descending --quick --kernel "
          "v1 --kernel v3 --tile 32,64,4,2 --head-dim 64 --dtype fp16 --repeats 5");
    options = {};
    options.device = parse_device("emulated");
    options.grid = GridSize::large;
    CHECK(replay_command(options) ==
          "backlight verify --device emulated --seed 1 --grid-order random --grid --grid-size "
          "large");
}

TEST_CASE("the emulated device gets few tiles of every kind of problem and fp64 for each") {
    for (const bool causal : {false, true}) {
        const auto groups = problem_groups({.head_dim = 64, .causal = causal, .emulated = true});
        std::vector<std::int64_t> lengths;
        std::size_t kinds = 0;
        for (const ProblemGroup& group : groups) {
            kinds += group.name.starts_with("small ") ? 1 : 0;
            REQUIRE_FALSE(group.problems.empty());
            for (const CheckedProblem& checked : group.problems) {
                const AttentionProblem& problem = checked.problem;
                CHECK(checked.reference == Reference::host_fp64);
                CHECK(problem.batch * problem.heads * problem.seqlen_q * problem.seqlen_kv <=
                      6 * 256 * 256);
                lengths.push_back(problem.seqlen_q);
            }
        }
        CHECK(kinds == verification::input_kinds.size());
        for (const std::int64_t length : {64, 128, 192, 256, 320, 384}) {
            CHECK(std::ranges::count(lengths, length) >= 1);
        }
        std::size_t quick = 0;
        for (const ProblemGroup& group :
             problem_groups({.head_dim = 64, .causal = causal, .quick = true, .emulated = true})) {
            quick += group.problems.size();
        }
        CHECK(quick == 5);
    }
}

TEST_CASE("numbers of heads of keys that no problem has are refused before they are multiplied") {
    constexpr std::int64_t most = std::int64_t{1} << 20U;
    for (const std::int64_t heads_kv :
         {std::int64_t{0}, std::int64_t{-2}, most + 1, std::numeric_limits<std::int64_t>::max()}) {
        for (const bool emulated : {false, true}) {
            check_refused(ErrorCode::invalid_argument,
                          {"heads-kv is '" + std::to_string(heads_kv), "from 1 to 1048576"}, [&] {
                              problem_groups({.head_dim = 64,
                                              .quick = true,
                                              .emulated = emulated,
                                              .features = {.heads_kv = heads_kv}});
                          });
        }
    }
    const auto groups = problem_groups({.head_dim = 64, .features = {.heads_kv = most}});
    CHECK(groups.front().problems.front().problem.heads == 2 * most);
}

TEST_CASE("a GPU gets large problems too") {
    bool large = false;
    for (const ProblemGroup& group : problem_groups({.head_dim = 64})) {
        large = large || group.name == "large";
    }
    CHECK(large);
}

TEST_CASE("a GPU gets heads that share a place of the accumulator of wgmma") {
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {false, true}) {
            bool shared = false;
            for (const ProblemGroup& group :
                 problem_groups({.head_dim = head_dim, .causal = causal})) {
                for (const CheckedProblem& checked : group.problems) {
                    const AttentionProblem& problem = checked.problem;
                    const TileConfig config = kernel_preset("wgmma");
                    if (tuning::is_legal(config, problem, device::target_by_name("sm_90a"))) {
                        const attention::WorkspaceLayout layout(problem, config);
                        shared = shared || layout.accumulator_heads < layout.batch_heads;
                    }
                }
            }
            CHECK(shared);
        }
    }
}
