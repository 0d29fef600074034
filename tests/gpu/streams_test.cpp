// Graphs, threads, contexts and several GPUs.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

using Operand = tool::ProblemData::Operand;

/// A stream of the context that is current when it is made.
class OwnStream {
  public:
    explicit OwnStream(const device::DriverApi& driver) : driver_(driver) {
        driver_.check(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "create a stream");
    }
    ~OwnStream() { driver_.cuStreamDestroy(stream_); }
    OwnStream(const OwnStream&) = delete;
    OwnStream& operator=(const OwnStream&) = delete;

    Stream get() const noexcept { return stream_; }
    void synchronise() const {
        driver_.check(driver_.cuStreamSynchronize(stream_), "synchronise with a stream");
    }

  private:
    const device::DriverApi& driver_;
    CUstream stream_ = nullptr;
};

int device_count(const device::DriverApi& driver) {
    int count = 0;
    driver.check(driver.cuDeviceGetCount(&count), "count the devices");
    return count;
}

TEST_CASE("a captured run, replayed, gives the bits of dK and dV that a direct run gives") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    tool::SupportKernels kernels(gpu);
    const tool::CheckedProblem problem = square_problem(2, 3, 256, 128, true);
    for (const KernelPreset& preset : presets_for(kernels, problem.problem)) {
        tool::ProblemCheck check(kernels, problem);
        const auto plan = gpu.runtime().backward(check.data().problem(), TileConfig(preset.config));
        require_passed(check.check(std::string(preset.name), *plan));
        const auto direct = check.data().gradients();

        CUgraph graph = nullptr;
        CUgraphExec executable = nullptr;
        driver.check(driver.cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL),
                     "begin a capture");
        check.data().run(*plan);
        driver.check(driver.cuStreamEndCapture(gpu.stream(), &graph), "end a capture");
        driver.check(driver.cuGraphInstantiateWithFlags(&executable, graph, 0),
                     "instantiate a graph");
        for (int replay = 0; replay < 5; ++replay) {
            check.data().poison();
            driver.check(driver.cuGraphLaunch(executable, gpu.stream()), "launch a graph");
            gpu.synchronise();
            const auto replayed = check.data().gradients();
            CHECK(replayed.d_k == direct.d_k);
            CHECK(replayed.d_v == direct.d_v);
            const bool no_nan = std::ranges::none_of(
                replayed.d_q, [](std::uint16_t bits) { return bits == 0xffff; });
            CHECK(no_nan);
        }
        driver.cuGraphExecDestroy(executable);
        driver.cuGraphDestroy(graph);
    }
}

TEST_CASE("eight threads share a plan, each with its own stream, tensors and workspace") {
    constexpr int thread_count = 8;
    constexpr int runs = 20;
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const auto plan = gpu.runtime().backward(square_problem(2, 4, 512, 128, true).problem);

    std::vector<std::unique_ptr<tool::ProblemData>> data;
    std::vector<tool::Gradients<std::uint16_t>> expected;
    for (int i = 0; i < thread_count; ++i) {
        data.push_back(std::make_unique<tool::ProblemData>(kernels, plan->problem()));
        data.back()->randomise(static_cast<std::uint64_t>(i) + 1);
        data.back()->run(*plan);
        expected.push_back(data.back()->gradients());
        data.back()->poison();
    }
    gpu.synchronise();
    REQUIRE(expected[0].d_k != expected[1].d_k);

    std::vector<std::exception_ptr> failures(thread_count);
    {
        std::vector<std::jthread> threads;
        for (std::size_t i = 0; i < data.size(); ++i) {
            threads.emplace_back([&, i] {
                try {
                    gpu.make_current();
                    const OwnStream stream(gpu.driver());
                    const std::size_t bytes = plan->workspace_bytes();
                    void* workspace = data[i]->workspace(bytes);
                    for (int run = 0; run < runs; ++run) {
                        plan->run(data[i]->tensors(), workspace, bytes, stream.get());
                    }
                    stream.synchronise();
                } catch (...) {
                    failures[i] = std::current_exception();
                }
            });
        }
    }
    for (std::size_t i = 0; i < data.size(); ++i) {
        if (failures[i]) {
            std::rethrow_exception(failures[i]);
        }
        const auto gradients = data[i]->gradients();
        CHECK(gradients.d_k == expected[i].d_k);
        CHECK(gradients.d_v == expected[i].d_v);
        CHECK_FALSE(data[i]->damaged_canary().has_value());
    }
}

TEST_CASE("threads that ask for the same new plan at once get one that works") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const AttentionProblem problem = square_problem(1, 2, 192, 64, true).problem;
    std::vector<std::shared_ptr<const BackwardPlan>> plans(8);
    {
        std::vector<std::jthread> threads;
        for (auto& plan : plans) {
            threads.emplace_back([&] {
                gpu.make_current();
                plan = gpu.runtime().backward(problem, kernel_preset("v2"));
            });
        }
    }
    for (const auto& plan : plans) {
        CHECK(plan == plans.front());
    }
    tool::ProblemCheck check(kernels, square_problem(1, 2, 192, 64, true));
    require_passed(check.check("v2", *plans.front()));
}

TEST_CASE("a run in a context that is not the primary one gives the same bits of dK and dV") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    tool::SupportKernels kernels(gpu);
    tool::ProblemCheck check(kernels, square_problem(2, 3, 256, 128, true));
    const auto plan = gpu.runtime().backward(check.data().problem());
    require_passed(check.check("default", *plan));
    const auto expected = check.data().gradients();

    // The library never makes a context, so that its table of driver functions lacks these two.
    void* library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    const auto create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned int, CUdevice)>(
        dlsym(library, "cuCtxCreate_v2"));
    const auto destroy =
        reinterpret_cast<CUresult (*)(CUcontext)>(dlsym(library, "cuCtxDestroy_v2"));
    REQUIRE((create != nullptr));
    REQUIRE((destroy != nullptr));

    // Downloaded in the primary context, uploaded in the other.
    constexpr std::array inputs = {Operand::q, Operand::k, Operand::v, Operand::o, Operand::d_o};
    std::vector<std::vector<std::byte>> input_bytes;
    for (const Operand operand : inputs) {
        input_bytes.push_back(check.data().download(operand));
    }
    const std::vector<float> lse = check.data().download_lse();
    const BackwardTensors primary = check.data().tensors();

    CUcontext context = nullptr;
    driver.check(create(&context, 0, gpu.cuda_device().handle()), "create a context");
    {
        const OwnStream stream(driver);
        std::vector<tool::DeviceBuffer> buffers;
        for (const auto& bytes : input_bytes) {
            buffers.emplace_back(gpu, bytes.size()).upload(bytes);
        }
        tool::DeviceBuffer lse_buffer(gpu, lse.size() * sizeof(float));
        lse_buffer.upload(lse);
        const std::size_t output_bytes = input_bytes[0].size();
        const tool::DeviceBuffer d_q(gpu, output_bytes);
        const tool::DeviceBuffer d_k(gpu, output_bytes);
        const tool::DeviceBuffer d_v(gpu, output_bytes);
        const tool::DeviceBuffer workspace(gpu, plan->workspace_bytes());
        for (const tool::DeviceBuffer* buffer : {&d_q, &d_k, &d_v, &workspace}) {
            buffer->fill(0xff, stream.get());
        }
        driver.check(driver.cuCtxSynchronize(), "wait for the copies");

        BackwardTensors tensors = primary;
        tensors.q.data = buffers[0].data();
        tensors.k.data = buffers[1].data();
        tensors.v.data = buffers[2].data();
        tensors.o.data = buffers[3].data();
        tensors.d_o.data = buffers[4].data();
        tensors.lse.data = lse_buffer.as<float>();
        tensors.d_q.data = d_q.data();
        tensors.d_k.data = d_k.data();
        tensors.d_v.data = d_v.data();
        plan->run(tensors, workspace.data(), plan->workspace_bytes(), stream.get());
        stream.synchronise();
        CHECK(d_k.download_all<std::uint16_t>() == expected.d_k);
        CHECK(d_v.download_all<std::uint16_t>() == expected.d_v);
    }
    driver.check(destroy(context), "destroy a context");
    gpu.make_current();
}

TEST_CASE("two GPUs of one process each serve a Runtime of their own") {
    tool::Gpu first;
    if (device_count(first.driver()) < 2) {
        MESSAGE("skipped: this machine has one GPU");
        return;
    }
    RuntimeOptions options;
    options.device = 1;
    tool::Gpu second(options);
    for (tool::Gpu* gpu : {&first, &second, &first}) {
        gpu->make_current();
        tool::SupportKernels kernels(*gpu);
        require_passed(tool::check_problem(kernels, square_problem(2, 3, 192, 128, true), "v3",
                                           kernel_preset("v3")));
    }
}

TEST_CASE("one Runtime serves streams of two GPUs of the same kind") {
    tool::Gpu first;
    if (device_count(first.driver()) < 2) {
        MESSAGE("skipped: this machine has one GPU");
        return;
    }
    RuntimeOptions options;
    options.device = 1;
    tool::Gpu second(options);
    if (first.runtime().target() != second.runtime().target()) {
        MESSAGE("skipped: the two GPUs are of different kinds");
        return;
    }
    first.make_current();
    const auto plan = first.runtime().backward(square_problem(2, 3, 192, 128, true).problem);
    for (tool::Gpu* gpu : {&second, &first, &second}) {
        gpu->make_current();
        tool::SupportKernels kernels(*gpu);
        tool::ProblemCheck check(kernels, square_problem(2, 3, 192, 128, true));
        require_passed(check.check("default", *plan));
    }
}

}  // namespace

}  // namespace backlight::test
