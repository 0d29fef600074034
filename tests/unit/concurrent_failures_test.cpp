// Many threads that want one problem while its kernels cannot be compiled, and then can.

#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include "backlight/error.hpp"
#include "device/cuda_device.hpp"
#include "runtime_implementation.hpp"
#include "scripted_backend.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::test;

TEST_CASE("a compile that fails reaches every caller by whatever way it asked and is forgotten") {
    fresh_driver();
    const AttentionProblem problem{
        .batch = 2, .heads = 4, .seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64};
    const auto compiler = std::make_shared<ScriptedBackend>();
    std::atomic<bool> broken = true;
    compiler->before_compile = [&] {
        if (broken) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            throw Error(ErrorCode::compile_failed, "the log of the compiler");
        }
    };
    const TemporaryDirectory folder;
    Runtime runtime(std::make_shared<Runtime::Implementation>(
        std::make_shared<device::CudaDevice>(device::open_driver(BACKLIGHT_FAKE_DRIVER_PATH), 0),
        compiler::KernelStoreOptions{.backend = compiler,
                                     .cache_directory = folder.path() / "cache",
                                     .compile_threads = 4}));
    constexpr int threads = 12;
    constexpr int rounds = 20;
    std::atomic<int> failures = 0;
    std::atomic<int> plans = 0;
    std::barrier round_begins(threads);
    const auto ask = [&](int way) {
        try {
            const auto plan = way == 0   ? runtime.backward(problem)
                              : way == 1 ? runtime.prepare(problem)
                                         : runtime.prepare_async(problem).get();
            plans += plan != nullptr ? 1 : 0;
        } catch (const Error& error) {
            failures += error.code() == ErrorCode::compile_failed &&
                                error.what() == std::string("the log of the compiler")
                            ? 1
                            : 0;
        }
    };
    std::vector<std::jthread> callers;
    for (int i = 0; i < threads; ++i) {
        callers.emplace_back([&, i] {
            for (int round = 0; round < rounds; ++round) {
                round_begins.arrive_and_wait();
                ask((i + round) % 3);
            }
        });
    }
    callers.clear();
    CHECK(failures == threads * rounds);
    CHECK(plans == 0);

    broken = false;
    const int before = compiler->compiles;
    for (int i = 0; i < threads; ++i) {
        callers.emplace_back([&, i] { ask(i % 3); });
    }
    callers.clear();
    CHECK(plans == threads);
    const auto kernels = static_cast<int>(runtime.backward(problem)->resources().size());
    // Shared while it lasted, tried again later: neither once for each caller nor once in all.
    CHECK(before >= kernels * rounds / 2);
    CHECK(before < kernels * threads * rounds);
    CHECK(compiler->compiles == before + kernels);
    CHECK(runtime.counters().stores == static_cast<std::uint64_t>(kernels));
}
