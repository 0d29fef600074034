// Plans made ahead: prepare, capture, policy, layers and what asking again costs.

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "backlight/cache/pack.hpp"
#include "device/cuda_device.hpp"
#include "runtime_implementation.hpp"
#include "scripted_backend.hpp"
#include "test_support.hpp"

using namespace backlight;
using test::CapturedLog;
using test::check_refused;
using test::Environment;
using test::fake_options;
using test::fresh_driver;
using test::ScriptedBackend;
using test::tensors_at;

namespace {

const AttentionProblem problem{
    .batch = 2, .heads = 4, .seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64, .causal = true};

AttentionProblem of_length(std::int64_t seqlen) {
    AttentionProblem other = problem;
    other.seqlen_q = other.seqlen_kv = seqlen;
    return other;
}

/// A Runtime over the fake driver and a compiler that costs nothing.
struct ScriptedRuntime {
    explicit ScriptedRuntime(compiler::KernelStoreOptions options = {},
                             std::chrono::milliseconds pause = {})
        : compiler(std::make_shared<ScriptedBackend>("1.0", pause)), runtime([&] {
              options.backend = compiler;
              return std::make_shared<Runtime::Implementation>(
                  std::make_shared<device::CudaDevice>(
                      device::open_driver(BACKLIGHT_FAKE_DRIVER_PATH), 0),
                  std::move(options));
          }()) {}

    std::shared_ptr<ScriptedBackend> compiler;
    Runtime runtime;
};

TileConfig baked() {
    TileConfig config = kernel_preset("v3");
    config.sequence_lengths = SequenceLengths::compile_time;
    return config;
}

}  // namespace

// --- Repeats ------------------------------------------------------------------------------------

TEST_CASE("a training loop over many lengths and batches compiles three kernels in all") {
    fresh_driver();
    ScriptedRuntime scripted;
    for (int step = 0; step < 100; ++step) {
        AttentionProblem micro_batch = of_length(64 * (1 + step % 25));
        micro_batch.batch = 1 + step % 3;
        // A value made anew each time, as a framework's binding makes it.
        scripted.runtime.backward(AttentionProblem(micro_batch), kernel_preset("v3"));
    }
    CHECK(scripted.compiler->compiles == 3);
}

TEST_CASE("problems that are compiled for once a length are warned of once") {
    fresh_driver();
    ScriptedRuntime scripted;
    const CapturedLog log;
    for (int tiles = 1; tiles <= 4; ++tiles) {
        scripted.runtime.backward(of_length(64 * tiles), baked());
    }
    CHECK(log.text().empty());
    for (int tiles = 5; tiles <= 9; ++tiles) {
        scripted.runtime.backward(of_length(64 * tiles), baked());
    }
    CHECK(log.count("warning: ") == 1);
    CHECK(log.count("compiled for 5 times") == 1);
    CHECK(log.count("sequence_lengths = run_time") == 1);
    for (int tiles = 10; tiles <= 19; ++tiles) {
        scripted.runtime.backward(of_length(64 * tiles), kernel_preset("v3"));
    }
    CHECK(log.count("warning: ") == 1);
}

TEST_CASE("baked lengths that come from the cache are not warned of") {
    fresh_driver();
    const test::TemporaryDirectory directory;
    for (int pass = 0; pass < 2; ++pass) {
        ScriptedRuntime scripted({.cache_directory = directory.path()});
        const CapturedLog log;
        for (int tiles = 1; tiles <= 9; ++tiles) {
            scripted.runtime.backward(of_length(64 * tiles), baked());
        }
        CHECK(log.count("warning: ") == (pass == 0 ? 1 : 0));
    }
}

TEST_CASE("a plan that is there is had for a lookup") {
    fresh_driver();
    ScriptedRuntime scripted;
    std::vector<std::shared_ptr<const BackwardPlan>> plans;
    for (int tiles = 1; tiles <= 100; ++tiles) {
        plans.push_back(scripted.runtime.backward(of_length(64 * tiles)));
    }
    constexpr int calls = 20000;
    using Nanoseconds = std::chrono::duration<double, std::nano>;
    double fastest = 1e9;
    for (int round = 0; round < 5; ++round) {
        const auto begin = std::chrono::steady_clock::now();
        for (int call = 0; call < calls; ++call) {
            if (scripted.runtime.backward(plans[static_cast<std::size_t>(call % 100)]->problem()) ==
                nullptr) {
                FAIL("there is no plan");
            }
        }
        const Nanoseconds passed = std::chrono::steady_clock::now() - begin;
        fastest = std::min(fastest, passed.count() / calls);
    }
    MESSAGE("Runtime::backward on a planned problem: " << fastest << " ns");
    // An optimised build takes a tenth of a microsecond; sanitizers and busy machines take more.
    CHECK(fastest < 20000);
}

// --- prepare ------------------------------------------------------------------------------------

TEST_CASE("prepare gives the plan of backward ready in the current context") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    const auto plan = scripted.runtime.backward(problem);
    driver.fake_set_current_context(true);
    // Only what makes code ready in a context asks for this.
    driver.fake_fail_next("cuFuncGetAttribute", CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(scripted.runtime.backward(problem) == plan);
    check_refused(ErrorCode::driver_failed, {"CUDA_ERROR_OUT_OF_MEMORY"},
                  [&] { scripted.runtime.prepare(problem); });
    CHECK(scripted.runtime.prepare(problem) == plan);
    CHECK(scripted.runtime.prepare(problem, plan->config()) == plan);
    CHECK(scripted.compiler->compiles == static_cast<int>(plan->resources().size()));
}

TEST_CASE("prepare_async gives the plan that backward gives and works in the caller's context") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    const auto future = scripted.runtime.prepare_async(problem);
    CHECK(future.get() == scripted.runtime.backward(problem));
    CHECK(scripted.runtime.prepare_async(problem, kernel_preset("v1")).get() ==
          scripted.runtime.backward(problem, kernel_preset("v1")));
    driver.fake_set_current_context(true);
    driver.fake_fail_next("cuFuncGetAttribute", CUDA_ERROR_OUT_OF_MEMORY);
    check_refused(ErrorCode::driver_failed, {"CUDA_ERROR_OUT_OF_MEMORY"},
                  [&] { scripted.runtime.prepare_async(problem).get(); });
    AttentionProblem wrong = problem;
    wrong.head_dim = 264;
    check_refused(ErrorCode::unsupported, {"head_dim is 264"},
                  [&] { scripted.runtime.prepare_async(wrong).get(); });
}

TEST_CASE("many problems prepared at once are bounded in threads and waited for at the end") {
    fresh_driver();
    std::vector<std::shared_future<std::shared_ptr<const BackwardPlan>>> plans;
    std::shared_ptr<ScriptedBackend> compiler;
    {
        ScriptedRuntime scripted({.compile_threads = 2}, std::chrono::milliseconds(2));
        compiler = scripted.compiler;
        for (int tiles = 1; tiles <= 10; ++tiles) {
            plans.push_back(scripted.runtime.prepare_async(of_length(64 * tiles), baked()));
        }
    }
    for (std::size_t i = 0; i < plans.size(); ++i) {
        CHECK(plans[i].wait_for(std::chrono::seconds(0)) == std::future_status::ready);
        CHECK(plans[i].get()->problem() == of_length(64 * static_cast<std::int64_t>(i + 1)));
    }
    CHECK(compiler->most_at_once <= 2);
}

TEST_CASE("the three kernels of a plan are compiled at the same time") {
    fresh_driver();
    ScriptedRuntime scripted({.compile_threads = 3}, std::chrono::milliseconds(50));
    scripted.runtime.backward(problem, kernel_preset("v3"));
    CHECK(scripted.compiler->most_at_once == 3);
}

// --- Capture ------------------------------------------------------------------------------------

TEST_CASE("a plan that would compile during a capture is refused and compiles nothing") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    driver.fake_set_current_context(true);
    driver.fake_set_capturing(true);
    for (int attempt = 0; attempt < 2; ++attempt) {
        check_refused(ErrorCode::capture_active,
                      {"attention_backward_delta", "compiled", "prepare the problem"},
                      [&] { scripted.runtime.backward(problem); });
    }
    CHECK(scripted.compiler->compiles == 0);
    CHECK(driver.fake_library_load_count() == 0);
    driver.fake_set_capturing(false);
    CHECK_NOTHROW(scripted.runtime.backward(problem));
}

TEST_CASE("a plan that would load a compiled kernel during a capture is refused") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    driver.fake_set_current_context(true);
    for (const attention::KernelPlan& plan : attention::backward_chain(
             problem, kernel_preset("v3"),
             scripted.runtime.implementation().device().properties().target)) {
        scripted.runtime.implementation().store().get(plan.request);
    }
    driver.fake_set_capturing(true);
    check_refused(ErrorCode::capture_active, {"attention_backward_delta", "loaded"},
                  [&] { scripted.runtime.backward(problem, kernel_preset("v3")); });
    CHECK(driver.fake_library_load_count() == 0);
}

TEST_CASE("during a capture planned problems run and another length of them is planned") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    driver.fake_set_current_context(true);
    const TileConfig config = kernel_preset("v3");
    const auto prepared = scripted.runtime.prepare(problem, config);
    driver.fake_set_capturing(true);
    const auto plan = scripted.runtime.backward(problem, config);
    CHECK(plan == prepared);
    plan->run(tensors_at(problem, test::tensor_base), test::workspace_address,
              plan->workspace_bytes(), nullptr);
    CHECK(driver.fake_launch_count() == 3);
    CHECK(scripted.runtime.backward(of_length(1024), config) != nullptr);
    CHECK(scripted.compiler->compiles == 3);
}

TEST_CASE("a capture elsewhere is none where the thread has no context") {
    auto& driver = fresh_driver();
    ScriptedRuntime scripted;
    driver.fake_set_capturing(true);
    CHECK_NOTHROW(scripted.runtime.backward(problem));
}

TEST_CASE("a capture that only the load runs into is told as one and costs no cached kernel") {
    auto& driver = fresh_driver();
    const test::TemporaryDirectory directory;
    ScriptedRuntime({.cache_directory = directory.path()}).runtime.backward(problem);
    for (const char* call : {"cuLibraryLoadData", "cuKernelGetFunction", "cuFuncGetAttribute"}) {
        CAPTURE(call);
        ScriptedRuntime scripted({.cache_directory = directory.path()});
        driver.fake_set_current_context(true);
        driver.fake_fail_next(call, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        check_refused(ErrorCode::capture_active,
                      {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "before the capture begins"},
                      [&] { scripted.runtime.backward(problem); });
        CHECK_NOTHROW(scripted.runtime.backward(problem));
        CHECK(scripted.compiler->compiles == 0);
        CHECK(scripted.runtime.counters().repairs == 0);
    }
}

TEST_CASE("a driver that is out of memory costs no cached kernel") {
    auto& driver = fresh_driver();
    const test::TemporaryDirectory directory;
    ScriptedRuntime({.cache_directory = directory.path()}).runtime.backward(problem);
    ScriptedRuntime scripted({.cache_directory = directory.path()});
    driver.fake_fail_next("cuLibraryLoadData", CUDA_ERROR_OUT_OF_MEMORY);
    check_refused(ErrorCode::driver_failed, {"CUDA_ERROR_OUT_OF_MEMORY"},
                  [&] { scripted.runtime.backward(problem); });
    CHECK_NOTHROW(scripted.runtime.backward(problem));
    CHECK(scripted.compiler->compiles == 0);
}

// --- Layers and policy --------------------------------------------------------------------------

TEST_CASE("an application with a pack in memory needs no NVRTC and no directory") {
    fresh_driver();
    const test::TemporaryDirectory directory;
    RuntimeOptions options = fake_options();
    options.cache_directory = directory.path() / "made";
    Runtime(options).backward(problem);
    cache::DiskCache disk(options.cache_directory, {});
    std::vector<cache::PackedEntry> entries;
    for (const cache::StoredEntry& stored : disk.list(cache::Check::heads).entries) {
        entries.push_back({stored.key, disk.load(stored.key).value()});
    }
    std::string reason;
    const std::string pack = cache::encode_pack(entries, reason).value();

    for (const CompilePolicy policy : {CompilePolicy::forbid, CompilePolicy::allow}) {
        RuntimeOptions shipped = options;
        shipped.nvrtc_path = "/does/not/exist/libnvrtc.so";
        shipped.disable_disk_cache = true;
        shipped.cache_layers = {{.name = "embedded", .pack = std::as_bytes(std::span(pack))}};
        shipped.compile_policy = policy;
        Runtime runtime(shipped);
        const auto plan = runtime.backward(problem);
        for (const KernelResources& kernel : plan->resources()) {
            CHECK(kernel.cached);
            CHECK(kernel.registers > 0);
        }
        CHECK(runtime.counters().hits_by_layer ==
              std::vector<LayerHits>{{"embedded", plan->resources().size()}});
        AttentionProblem other = problem;
        other.head_dim = 128;
        check_refused(policy == CompilePolicy::forbid ? ErrorCode::compile_forbidden
                                                      : ErrorCode::nvrtc_not_found,
                      {}, [&] { runtime.backward(other); });
    }
}

TEST_CASE("layers of the environment come behind those of the application") {
    const Environment layers("BACKLIGHT_CACHE_LAYERS", "/usr/share/kernels::/opt/pack.blpack:");
    const Environment none("BACKLIGHT_COMPILE_POLICY", std::nullopt);
    const RuntimeOptions options =
        with_environment({.cache_layers = {{.name = "mine", .path = "/mine"}}});
    REQUIRE(options.cache_layers.size() == 3);
    CHECK(options.cache_layers[0].name == "mine");
    CHECK(options.cache_layers[1].path == "/usr/share/kernels");
    CHECK(options.cache_layers[2].path == "/opt/pack.blpack");
    const Environment relative("BACKLIGHT_CACHE_LAYERS", "kernels");
    CHECK(with_environment({}).cache_layers.at(0).path ==
          std::filesystem::current_path() / "kernels");
}

TEST_CASE("of two compile policies the stricter is in force") {
    using enum CompilePolicy;
    struct Case {
        const char* environment;
        CompilePolicy own;
        CompilePolicy in_force;
    };
    for (const Case& pair : {Case{"allow", allow, allow},
                             {"warn", allow, warn},
                             {"forbid", allow, forbid},
                             {"allow", forbid, forbid},
                             {"forbid", warn, forbid},
                             {"", warn, warn}}) {
        const Environment policy("BACKLIGHT_COMPILE_POLICY", pair.environment);
        CHECK(with_environment({.compile_policy = pair.own}).compile_policy == pair.in_force);
    }
    const Environment policy("BACKLIGHT_COMPILE_POLICY", "never");
    check_refused(ErrorCode::invalid_argument,
                  {"BACKLIGHT_COMPILE_POLICY is 'never'", "allow, warn or forbid"},
                  [] { with_environment({}); });
    CHECK(to_string(static_cast<CompilePolicy>(9)) == std::string("unknown"));
}

TEST_CASE("the counters of a Runtime tell where its kernels came from") {
    fresh_driver();
    const test::TemporaryDirectory directory;
    ScriptedRuntime first({.cache_directory = directory.path()});
    first.runtime.backward(problem, kernel_preset("v3"));
    first.runtime.backward(of_length(1024), kernel_preset("v3"));
    RuntimeCounters counters = first.runtime.counters();
    CHECK(counters.compiles == 3);
    CHECK(counters.compile_milliseconds == 7.5);
    CHECK(counters.misses == 3);
    CHECK(counters.stores == 3);
    CHECK(counters.memory_hits == 3);
    CHECK(counters.layer_hits() == 0);
    ScriptedRuntime second({.cache_directory = directory.path()});
    second.runtime.backward(problem, kernel_preset("v3"));
    counters = second.runtime.counters();
    CHECK(counters.hits_by_layer == std::vector<LayerHits>{{directory.path(), 3}});
    CHECK(counters.compiles == 0);
    CHECK(counters.misses == 0);
}
