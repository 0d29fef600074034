// What a plan uses where the kernel that would be best cannot be had.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "backlight/error.hpp"
#include "device/cuda_device.hpp"
#include "runtime_implementation.hpp"
#include "scripted_backend.hpp"
#include "tuning/choice.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tuning;

namespace {

const AttentionProblem problem = tuned_problem();
const TileConfig tuned{.block_q = 32, .block_kv = 32, .warps = 4, .stages = 2};
const TileConfig second{.block_q = 16, .block_kv = 64, .warps = 4, .stages = 1};

/// A Runtime over the fake driver and a compiler that costs nothing, on whose card two
/// configurations were timed: `tuned`, and twice as slow `second`.
struct TunedRuntime {
    explicit TunedRuntime(compiler::KernelStoreOptions options, const CompilePolicy policy)
        : compiler(std::make_shared<ScriptedBackend>()) {
        options.backend = compiler;
        options.compile_policy = policy;
        implementation = std::make_shared<Runtime::Implementation>(
            std::make_shared<device::CudaDevice>(device::open_driver(BACKLIGHT_FAKE_DRIVER_PATH),
                                                 0),
            std::move(options));
        implementation->tunings().add(database_of({timed(tuned, 0.5), timed(second, 1)}));
    }

    Record timed(const TileConfig& config, double milliseconds) const {
        Record made = record(config, milliseconds, problem);
        made.card = card_of(implementation->device().properties());
        return made;
    }

    TileConfig usual() const {
        return heuristic(problem, implementation->device().properties().target);
    }

    std::shared_ptr<ScriptedBackend> compiler;
    std::shared_ptr<Runtime::Implementation> implementation;
};

/// A directory with the kernels of these configurations and no others.
void prebuild(const std::filesystem::path& directory, const std::vector<TileConfig>& configs) {
    TunedRuntime all({.cache_directory = directory}, CompilePolicy::allow);
    for (const TileConfig& config : configs) {
        all.implementation->backward(problem, config);
    }
}

}  // namespace

TEST_CASE("where the tuned kernel is in no layer a plan takes the next best that is in one") {
    fresh_driver();
    const TemporaryDirectory folder;
    TunedRuntime any({}, CompilePolicy::allow);
    REQUIRE(any.usual() != tuned);
    REQUIRE(any.usual() != second);
    prebuild(folder.path(), {second, any.usual()});
    const CapturedLog log;
    TunedRuntime runtime({.cache_directory = folder.path()}, CompilePolicy::forbid);
    CHECK(runtime.implementation->backward(problem)->config() == second);
    CHECK(runtime.compiler->compiles == 0);
    CHECK(log.count("warning: ") == 1);
    CHECK(log.count(to_string(second)) == 1);
    CHECK(log.count(to_string(tuned)) == 0);
    CHECK(log.count("is in no layer of the cache") == 1);
    // Told once a Runtime, not once a length.
    AttentionProblem longer = problem;
    longer.seqlen_q = longer.seqlen_kv = 8192;
    CHECK(runtime.implementation->backward(longer)->config() == second);
    CHECK(log.count("warning: ") == 1);
    // What is named is never replaced.
    check_refused(ErrorCode::compile_forbidden, {"is in no layer"},
                  [&] { runtime.implementation->backward(problem, tuned); });
}

TEST_CASE("where no recorded kernel is in a layer a plan takes the heuristic's") {
    fresh_driver();
    const TemporaryDirectory folder;
    const TileConfig usual = TunedRuntime({}, CompilePolicy::allow).usual();
    prebuild(folder.path(), {usual});
    const CapturedLog log;
    TunedRuntime runtime({.cache_directory = folder.path()}, CompilePolicy::forbid);
    CHECK(runtime.implementation->backward(problem)->config() == usual);
    CHECK(runtime.implementation->prepare(problem, std::nullopt)->config() == usual);
    CHECK(runtime.compiler->compiles == 0);
    CHECK(log.count("warning: ") == 1);
}

TEST_CASE("where no kernel serves the refusal is of the best and tells what else was tried") {
    fresh_driver();
    TunedRuntime runtime({}, CompilePolicy::forbid);
    check_refused(ErrorCode::compile_forbidden,
                  {"in no layer of the cache", "Layers looked in: none", "cannot be had either",
                   to_string(runtime.usual())},
                  [&] { runtime.implementation->backward(problem); });
    auto future = runtime.implementation->prepare_async(problem, std::nullopt);
    check_refused(ErrorCode::compile_forbidden, {"cannot be had either"}, [&] { future.get(); });
    CHECK(runtime.compiler->compiles == 0);
}

TEST_CASE("a tuned kernel that is in a layer is used whatever the policy") {
    fresh_driver();
    const TemporaryDirectory folder;
    prebuild(folder.path(), {tuned});
    const CapturedLog log;
    TunedRuntime runtime({.cache_directory = folder.path()}, CompilePolicy::forbid);
    CHECK(runtime.implementation->backward(problem)->config() == tuned);
    CHECK(log.count("warning: ") == 0);
}

TEST_CASE("a tuned record costs no program its run that has no compiler but other kernels") {
    fresh_driver();
    const TemporaryDirectory folder;
    RuntimeOptions options = fake_options();
    options.cache_directory = folder.path() / "cache";
    options.tuning_database = folder.path() / "tuning.json";
    TileConfig usual;
    {
        Runtime runtime(options);
        const device::DeviceProperties& device = runtime.implementation().device().properties();
        usual = heuristic(problem, device.target);
        runtime.backward(problem, usual);
        Record fast = record(tuned, 0.5, problem);
        fast.card = card_of(device);
        write_database(options.tuning_database, database_of({fast}));
    }
    options.nvrtc_path = "/does/not/exist/libnvrtc.so";
    const CapturedLog log;
    Runtime runtime(options);
    CHECK(runtime.backward(problem)->config() == usual);
    CHECK(log.count("warning: ") == 1);
    check_refused(ErrorCode::nvrtc_not_found, {"/does/not/exist/libnvrtc.so"},
                  [&] { runtime.backward(problem, tuned); });
}

TEST_CASE("a plan that was chosen while the card was being tuned is not kept beyond it") {
    fresh_driver();
    TunedRuntime runtime({}, CompilePolicy::allow);
    std::atomic<bool> begun = false;
    std::atomic<bool> tuned_anew = false;
    runtime.compiler->before_compile = [&] {
        begun = true;
        while (!tuned_anew) {
            std::this_thread::yield();
        }
    };
    std::thread early([&] { runtime.implementation->backward(problem); });
    while (!begun) {
        std::this_thread::yield();
    }
    runtime.implementation->tunings().add(database_of({runtime.timed(second, 0.1)}));
    runtime.implementation->forget_choices();
    tuned_anew = true;
    early.join();
    CHECK(runtime.implementation->backward(problem)->config() == second);
}
