// The C API beside the C++ one. tests/c_api has what a program in C sees.

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attention/validation.hpp"
#include "c_api/guard.hpp"
#include "c_api/structs.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::c_api;
using test::check_refused;
using test::fake_options;
using test::fresh_driver;

namespace {

const AttentionProblem problem{
    .batch = 2, .heads = 4, .seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64, .causal = true};

struct Handles {
    Handles() {
        const RuntimeOptions cpp = fake_options();
        backlight_runtime_options options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
        options.driver_path = cpp.driver_path.c_str();
        options.nvrtc_path = cpp.nvrtc_path.c_str();
        options.cache_directory = cpp.cache_directory.c_str();
        REQUIRE(backlight_runtime_create(&options, &runtime) == BACKLIGHT_SUCCESS);
    }
    ~Handles() {
        backlight_plan_destroy(plan);
        backlight_runtime_destroy(runtime);
    }
    Handles(const Handles&) = delete;
    Handles& operator=(const Handles&) = delete;

    backlight_runtime* runtime = nullptr;
    backlight_plan* plan = nullptr;
};

/// Both calls must be refused, with one status and one text.
void check_same_refusal(const std::function<void()>& cpp,
                        const std::function<backlight_status()>& c) {
    try {
        cpp();
        FAIL_CHECK("accepted in C++");
    } catch (const Error& error) {
        CAPTURE(error.what());
        CHECK(c() == static_cast<backlight_status>(error.code()));
        CHECK(std::string(backlight_last_error_message()) == error.what());
    }
}

}  // namespace

TEST_CASE("the defaults of the C structs are those of C++") {
    const backlight_problem c_problem = BACKLIGHT_PROBLEM_INIT;
    CHECK(problem_of(&c_problem) == AttentionProblem{});
    const backlight_tile_config c_config = BACKLIGHT_TILE_CONFIG_INIT;
    CHECK(config_of(&c_config) == TileConfig{});
    CHECK_FALSE(config_of(nullptr));

    const backlight_runtime_options c_options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
    const RuntimeOptions options = options_of(&c_options);
    const RuntimeOptions expected;
    CHECK(options.device == expected.device);
    CHECK(options.driver_path.empty());
    CHECK(options.nvrtc_path.empty());
    CHECK(options.cache_directory.empty());
    CHECK(options.tuning_database.empty());
    CHECK(options.cache_layers.empty());
    CHECK(options.disable_disk_cache == expected.disable_disk_cache);
    CHECK(options.cache_byte_limit == expected.cache_byte_limit);
    CHECK(options.compile_policy == expected.compile_policy);
    CHECK(options.compile_threads == expected.compile_threads);

    const backlight_tune_options c_tune = BACKLIGHT_TUNE_OPTIONS_INIT;
    const TuneOptions tune = tune_options_of(&c_tune);
    const TuneOptions expected_tune;
    CHECK(tune.kernel_family == expected_tune.kernel_family);
    CHECK(tune.budget == expected_tune.budget);
    CHECK(tune.compile_threads == expected_tune.compile_threads);
    CHECK(tune.repeats == expected_tune.repeats);
    CHECK(tune.retime == expected_tune.retime);
    CHECK(tune.stream == expected_tune.stream);
    CHECK_FALSE(tune.progress);
}

TEST_CASE("problems and configurations come back from C as they went") {
    const AttentionProblem full{.batch = 2,
                                .heads = 12,
                                .heads_kv = 3,
                                .seqlen_q = 500,
                                .seqlen_kv = 600,
                                .head_dim = 96,
                                .head_dim_v = 64,
                                .causal = true,
                                .mask_alignment = MaskAlignment::top_left,
                                .window_left = 7,
                                .window_right = 0,
                                .dtype = DataType::fp16,
                                .gradient_type = GradientType::fp32,
                                .accumulate_gradients = true,
                                .softmax_scale = -0.5F,
                                .deterministic = true,
                                .packed = PackedSequences{.total_q = 900, .total_kv = 1100}};
    for (const AttentionProblem& one : {problem, full, AttentionProblem{.softmax_scale = 0.0F}}) {
        const backlight_problem c = problem_in_c(one);
        CHECK(problem_of(&c) == one);
    }
    for (const KernelPreset& preset : kernel_presets()) {
        TileConfig config = preset.config;
        for (int change = 0; change < 3; ++change) {
            const backlight_tile_config c = config_in_c(config);
            CHECK(config_of(&c) == config);
            config.sequence_lengths = SequenceLengths::compile_time;
            config.programmatic_dependent_launch = change == 0;
            config.converts_d_q = change == 1;
        }
    }
}

TEST_CASE("options and tensors arrive in C++ field by field") {
    const std::array<std::byte, 3> pack{};
    backlight_cache_layer layer = BACKLIGHT_CACHE_LAYER_INIT;
    layer.name = "own";
    layer.path = "/kernels";
    layer.pack = pack.data();
    layer.pack_bytes = pack.size();
    const backlight_runtime_options c{.struct_size = sizeof(c),
                                      .device = 3,
                                      .disable_disk_cache = 1,
                                      .driver_path = "/driver",
                                      .nvrtc_path = "/nvrtc",
                                      .cache_directory = "/cache",
                                      .tuning_database = "/tuning",
                                      .cache_layers = &layer,
                                      .cache_layer_count = 1,
                                      .cache_byte_limit = 77,
                                      .compile_policy = BACKLIGHT_COMPILE_WARN,
                                      .compile_threads = 5};
    const RuntimeOptions options = options_of(&c);
    CHECK(options.device == 3);
    CHECK(options.disable_disk_cache);
    CHECK(options.driver_path == "/driver");
    CHECK(options.nvrtc_path == "/nvrtc");
    CHECK(options.cache_directory == "/cache");
    CHECK(options.tuning_database == "/tuning");
    CHECK(options.cache_byte_limit == 77);
    CHECK(options.compile_policy == CompilePolicy::warn);
    CHECK(options.compile_threads == 5);
    REQUIRE(options.cache_layers.size() == 1);
    CHECK(options.cache_layers[0].name == "own");
    CHECK(options.cache_layers[0].path == "/kernels");
    CHECK(options.cache_layers[0].pack.data() == pack.data());
    CHECK(options.cache_layers[0].pack.size() == pack.size());

    backlight_tensors c_tensors = BACKLIGHT_TENSORS_INIT;
    // Every pointer and stride its own.
    std::int64_t next = 1;
    const auto number = [&](auto& tensor) {
        tensor.data = reinterpret_cast<decltype(tensor.data)>(next++ * 16);
        tensor.stride_batch = next++;
        tensor.stride_head = next++;
        if constexpr (requires { tensor.stride_seqlen; }) {
            tensor.stride_seqlen = next++;
        }
    };
    number(c_tensors.q);
    number(c_tensors.k);
    number(c_tensors.v);
    number(c_tensors.o);
    number(c_tensors.d_o);
    number(c_tensors.lse);
    number(c_tensors.d_q);
    number(c_tensors.d_k);
    number(c_tensors.d_v);
    std::array<std::int32_t, 4> arrays{};
    c_tensors.cu_seqlens_q = &arrays[0];
    c_tensors.cu_seqlens_kv = &arrays[1];
    c_tensors.seqused_q = &arrays[2];
    c_tensors.seqused_kv = &arrays[3];
    const BackwardTensors tensors = tensors_of(&c_tensors);
    const auto same = [](const auto& cpp, const auto& c_view) {
        bool result = cpp.data == c_view.data && cpp.stride_batch == c_view.stride_batch &&
                      cpp.stride_head == c_view.stride_head;
        if constexpr (requires { c_view.stride_seqlen; }) {
            result = result && cpp.stride_seqlen == c_view.stride_seqlen;
        }
        return result;
    };
    CHECK(same(tensors.q, c_tensors.q));
    CHECK(same(tensors.k, c_tensors.k));
    CHECK(same(tensors.v, c_tensors.v));
    CHECK(same(tensors.o, c_tensors.o));
    CHECK(same(tensors.d_o, c_tensors.d_o));
    CHECK(same(tensors.lse, c_tensors.lse));
    CHECK(same(tensors.d_q, c_tensors.d_q));
    CHECK(same(tensors.d_k, c_tensors.d_k));
    CHECK(same(tensors.d_v, c_tensors.d_v));
    CHECK(tensors.cu_seqlens_q == &arrays[0]);
    CHECK(tensors.cu_seqlens_kv == &arrays[1]);
    CHECK(tensors.seqused_q == &arrays[2]);
    CHECK(tensors.seqused_kv == &arrays[3]);
}

TEST_CASE("a layer of another size than the first is refused before it is read") {
    // The second layer's bytes are the last of the memory: a sanitizer tells who reads beyond.
    std::vector<backlight_cache_layer> layers(2, BACKLIGHT_CACHE_LAYER_INIT);
    backlight_runtime_options options = BACKLIGHT_RUNTIME_OPTIONS_INIT;
    options.cache_layers = layers.data();
    options.cache_layer_count = layers.size();
    for (const std::size_t size : {0, 8, 48, 4096, 1 << 20}) {
        layers[1].struct_size = size;
        check_refused(ErrorCode::invalid_argument,
                      {"cache_layers[1].struct_size is " + std::to_string(size) +
                       ": it must be that of cache_layers[0], 40"},
                      [&] { options_of(&options); });
    }
    layers[1].struct_size = sizeof(backlight_cache_layer);
    CHECK(options_of(&options).cache_layers.size() == 2);
}

TEST_CASE("an error of the C API has the status and the very text of the C++ one") {
    auto& driver = fresh_driver();
    const Handles c;
    Runtime runtime(fake_options());

    std::array<AttentionProblem, 8> refused;
    refused.fill(problem);
    refused[0].heads = 0;
    refused[1].heads_kv = 3;
    refused[2].head_dim = 12;
    refused[3].window_right = -5;
    refused[4].accumulate_gradients = true;
    refused[5].softmax_scale = 2e38F;
    refused[6].packed = PackedSequences{.total_q = -1, .total_kv = 1};
    refused[7].batch = std::int64_t{1} << 40;
    for (const AttentionProblem& one : refused) {
        const backlight_problem c_problem = problem_in_c(one);
        backlight_plan* plan = nullptr;
        check_same_refusal(
            [&] { runtime.backward(one); },
            [&] { return backlight_runtime_backward(c.runtime, &c_problem, nullptr, &plan); });
    }

    TileConfig config = kernel_preset("v3");
    config.block_q = 17;
    const backlight_problem c_problem = problem_in_c(problem);
    const backlight_tile_config c_config = config_in_c(config);
    backlight_plan* plan = nullptr;
    check_same_refusal(
        [&] { runtime.prepare(problem, config); },
        [&] { return backlight_runtime_prepare(c.runtime, &c_problem, &c_config, &plan); });
    check_same_refusal([&] { kernel_preset("v0"); },
                       [&] {
                           backlight_tile_config out = BACKLIGHT_TILE_CONFIG_INIT;
                           return backlight_kernel_preset("v0", &out);
                       });

    const TileConfig v2 = kernel_preset("v2");
    const backlight_tile_config c_v2 = config_in_c(v2);
    check_same_refusal(
        [&] {
            driver.fake_fail_next("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
            Runtime(fake_options()).backward(problem, v2);
        },
        [&] {
            const Handles other;
            driver.fake_fail_next("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
            return backlight_runtime_backward(other.runtime, &c_problem, &c_v2, &plan);
        });
}

TEST_CASE("operations and bytes of a problem that plans refuse are refused alike") {
    std::array<AttentionProblem, 5> refused;
    refused.fill(problem);
    refused[0].seqlen_q = -64;
    refused[1].head_dim = -1;
    refused[2].window_left = -5;
    refused[3].heads_kv = 0;
    refused[4].packed = PackedSequences{.total_q = 1, .total_kv = -1};
    for (const AttentionProblem& one : refused) {
        const backlight_problem c_problem = problem_in_c(one);
        double figure = 5;
        for (const auto call : {backlight_backward_flops, backlight_backward_bytes}) {
            check_same_refusal([&] { attention::validate(one); },
                               [&] { return call(&c_problem, &figure); });
        }
        CHECK(figure == 5);
    }
    const backlight_problem c_problem = problem_in_c(problem);
    double figure = 0;
    CHECK(backlight_backward_flops(&c_problem, &figure) == BACKLIGHT_SUCCESS);
    CHECK(figure == backward_flops(problem));
    CHECK(backlight_backward_bytes(&c_problem, &figure) == BACKLIGHT_SUCCESS);
    CHECK(figure == backward_bytes(problem));
}

TEST_CASE("a struct of an older header has the defaults of what it lacks") {
    struct Known {
        std::size_t struct_size = 24;
        std::int64_t first = 1;
        std::int64_t later = 2;
    };
    const auto read_known = [](const void* given) {
        Known known;
        read_struct(given, "known", "known_init", 16, &known, sizeof(known));
        return known;
    };
    const std::array<std::int64_t, 2> older{16, 5};
    CHECK(read_known(older.data()).first == 5);
    CHECK(read_known(older.data()).later == 2);
    std::array<std::int64_t, 5> newer{40, 5, 6, 0, 0};
    CHECK(read_known(newer.data()).later == 6);
    newer[4] = std::int64_t{1} << 56;
    check_refused(
        ErrorCode::invalid_argument,
        {"known.struct_size is 40 and byte 39 is 1: what is beyond the 24 bytes", "must be 0"},
        [&] { read_known(newer.data()); });
    for (const std::int64_t size : {0, 8, 23, 4104, -8}) {
        newer[0] = size;
        check_refused(ErrorCode::invalid_argument, {"known.struct_size is", "known_init sets it"},
                      [&] { read_known(newer.data()); });
    }
}

TEST_CASE("no exception crosses into C whatever its type") {
    CHECK(guarded([] { throw std::bad_alloc(); }) == BACKLIGHT_OUT_OF_MEMORY);
    CHECK(std::string(backlight_last_error_message()) == "the host has no memory left");
    CHECK(guarded([] { throw std::runtime_error("the disk is on fire"); }) == BACKLIGHT_FAILED);
    CHECK(std::string(backlight_last_error_message()) == "the disk is on fire");
    CHECK(guarded([] { throw 5; }) == BACKLIGHT_FAILED);
    CHECK(std::string(backlight_last_error_message()).find("not known") != std::string::npos);
    CHECK(guarded([] { throw Error(ErrorCode::file_error, "no file"); }) == BACKLIGHT_FILE_ERROR);
    CHECK(guarded([] {}) == BACKLIGHT_SUCCESS);
    // What went well leaves the message as it was.
    CHECK(std::string(backlight_last_error_message()) == "no file");
}

TEST_CASE("each thread has an error message of its own") {
    backlight_tile_config config = BACKLIGHT_TILE_CONFIG_INIT;
    CHECK(backlight_kernel_preset("mine", &config) == BACKLIGHT_UNKNOWN_KERNEL);
    const std::string mine = backlight_last_error_message();
    std::string before;
    std::string theirs;
    std::thread([&] {
        before = backlight_last_error_message();
        backlight_kernel_preset("theirs", &config);
        theirs = backlight_last_error_message();
    }).join();
    CHECK(before.empty());
    CHECK(theirs.find("theirs") != std::string::npos);
    CHECK(backlight_last_error_message() == mine);
}

TEST_CASE("the tuner tells a C callback how far it is") {
    std::string told;
    backlight_tune_options c = BACKLIGHT_TUNE_OPTIONS_INIT;
    c.kernel_family = "mma";
    c.budget_seconds = 1.5;
    c.compile_threads = 3;
    c.repeats = 7;
    c.retime = 1;
    c.user = &told;
    c.progress = [](const backlight_tune_progress* progress, void* user) {
        *static_cast<std::string*>(user) =
            std::string(progress->stage) + " " + std::to_string(progress->done) + " of " +
            std::to_string(progress->total) + ", " + std::to_string(progress->struct_size);
    };
    const TuneOptions options = tune_options_of(&c);
    CHECK(options.kernel_family == "mma");
    CHECK(options.budget == std::chrono::duration<double>(1.5));
    CHECK(options.compile_threads == 3);
    CHECK(options.repeats == 7);
    CHECK(options.retime);
    options.progress({.stage = "screen", .done = 2, .total = 9});
    CHECK(told == "screen 2 of 9, 48");
}

TEST_CASE("a budget of the tuner that is not above 0 is refused by its name in C") {
    backlight_tune_options c = BACKLIGHT_TUNE_OPTIONS_INIT;
    for (const auto& [seconds, text] :
         {std::pair{0.0, "0"}, {-2.5, "-2.5"}, {double{NAN}, "nan"}}) {
        c.budget_seconds = seconds;
        check_refused(ErrorCode::invalid_argument,
                      {"budget_seconds is " + std::string(text) + ": it must be above 0"},
                      [&] { tune_options_of(&c); });
    }
}
