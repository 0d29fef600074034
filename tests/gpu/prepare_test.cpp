// What is made ready ahead, captures, and the first run of a warm process.
#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <string>

#include "backlight/error.hpp"
#include "gpu_test_support.hpp"
#include "temporary_directory.hpp"

namespace backlight::test {

namespace {

class OwnStream {
  public:
    OwnStream(const device::DriverApi& driver, unsigned flags) : driver_(driver) {
        driver_.check(driver_.cuStreamCreate(&stream_, flags), "create a stream");
    }
    ~OwnStream() { driver_.cuStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    CUstream get() const noexcept { return stream_; }

  private:
    const device::DriverApi& driver_;
    CUstream stream_ = nullptr;
};

void replay_once(const device::DriverApi& driver, CUgraph graph, CUstream stream) {
    CUgraphExec executable = nullptr;
    driver.check(driver.cuGraphInstantiateWithFlags(&executable, graph, 0), "instantiate a graph");
    driver.check(driver.cuGraphLaunch(executable, stream), "launch a graph");
    driver.check(driver.cuStreamSynchronize(stream), "synchronise with a stream");
    driver.cuGraphExecDestroy(executable);
    driver.cuGraphDestroy(graph);
}

/// What `backward` throws of that problem; nothing where it gives a plan.
std::optional<ErrorCode> refusal_of(Runtime& runtime, const AttentionProblem& problem,
                                    const TileConfig& config) {
    try {
        runtime.backward(problem, config);
        return std::nullopt;
    } catch (const Error& error) {
        MESSAGE(std::string(error.what()));
        return error.code();
    }
}

TEST_CASE("a plan that would compile is refused in a capture and what is prepared runs in it") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    const TemporaryDirectory cubins;
    Runtime runtime({.cache_directory = cubins.path()});
    tool::SupportKernels kernels(gpu);
    const AttentionProblem problem = square_problem(1, 2, 256, 64, true).problem;
    const auto plan = runtime.prepare(problem, kernel_preset("v3"));
    tool::ProblemData data(kernels, problem);
    data.randomise(1);
    void* workspace = data.workspace(plan->workspace_bytes());
    gpu.synchronise();

    const OwnStream stream(driver, CU_STREAM_DEFAULT);
    for (const CUstreamCaptureMode mode :
         {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL}) {
        CUgraph graph = nullptr;
        driver.check(driver.cuStreamBeginCapture(stream.get(), mode), "begin a capture");
        CHECK(refusal_of(runtime, problem, kernel_preset("v1")) == ErrorCode::capture_active);
        CHECK(runtime.backward(problem, kernel_preset("v3")) == plan);
        AttentionProblem longer = problem;
        longer.seqlen_q = longer.seqlen_kv = 512;
        CHECK_FALSE(refusal_of(runtime, longer, kernel_preset("v3")));
        plan->run(data.tensors(), workspace, plan->workspace_bytes(), stream.get());
        driver.check(driver.cuStreamEndCapture(stream.get(), &graph), "end a capture");
        replay_once(driver, graph, stream.get());
    }
    CHECK_FALSE(refusal_of(runtime, problem, kernel_preset("v1")));
}

TEST_CASE("a plan that would load in a capture of a non-blocking stream is no other error") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    const TemporaryDirectory cubins;
    const AttentionProblem problem = square_problem(1, 2, 256, 64, true).problem;
    Runtime({.cache_directory = cubins.path()}).prepare(problem, kernel_preset("v3"));
    Runtime runtime({.cache_directory = cubins.path()});

    const OwnStream stream(driver, CU_STREAM_NON_BLOCKING);
    CUgraph graph = nullptr;
    driver.check(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL),
                 "begin a capture");
    const auto refusal = refusal_of(runtime, problem, kernel_preset("v3"));
    CHECK((!refusal || *refusal == ErrorCode::capture_active));
    driver.cuStreamEndCapture(stream.get(), &graph);
    if (graph != nullptr) {
        driver.cuGraphDestroy(graph);
    }
    CHECK_FALSE(refusal_of(runtime, problem, kernel_preset("v3")));
    CHECK(runtime.counters().compiles == 0);
    CHECK(runtime.counters().repairs == 0);
}

TEST_CASE("the first run of a warm process is enqueued within milliseconds") {
    tool::Gpu gpu;
    const TemporaryDirectory cubins;
    tool::SupportKernels kernels(gpu);
    const AttentionProblem problem = square_problem(1, 2, 512, 128, true).problem;
    const RuntimeOptions options{.cache_directory = cubins.path()};
    const auto plan = Runtime(options).prepare(problem, kernel_preset("v3"));
    tool::ProblemData data(kernels, problem);
    data.randomise(1);
    void* workspace = data.workspace(plan->workspace_bytes());
    gpu.synchronise();

    using Milliseconds = std::chrono::duration<double, std::milli>;
    double fastest = std::numeric_limits<double>::max();
    for (int attempt = 0; attempt < 5; ++attempt) {
        const auto begin = std::chrono::steady_clock::now();
        Runtime runtime(options);
        const auto first = runtime.backward(problem, kernel_preset("v3"));
        first->run(data.tensors(), workspace, first->workspace_bytes(), gpu.stream());
        const Milliseconds passed = std::chrono::steady_clock::now() - begin;
        gpu.synchronise();
        CHECK(runtime.counters().compiles == 0);
        MESSAGE("Runtime, plan and first run: " << passed.count() << " ms");
        fastest = std::min(fastest, passed.count());
    }
    CHECK(fastest <= 5);
}

}  // namespace

}  // namespace backlight::test
