#include "host_time.hpp"

#include <chrono>
#include <numeric>

#include "attention/kernels.hpp"
#include "compiler/kernel_store.hpp"
#include "problem_data.hpp"
#include "ready_chain.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

namespace {

// Launches that the driver queues without waiting for the GPU; it takes about a thousand.
constexpr int calls_per_batch = 100;

template <typename Call>
std::vector<double> time_calls(const Gpu& gpu, int calls, const Call& call) {
    for (int i = 0; i < calls_per_batch; ++i) {
        call();
    }
    gpu.synchronise();
    std::vector<double> microseconds;
    microseconds.reserve(static_cast<std::size_t>(calls));
    for (int i = 0; i < calls; ++i) {
        if (i % calls_per_batch == 0) {
            gpu.synchronise();
        }
        const auto start = std::chrono::steady_clock::now();
        call();
        const auto stop = std::chrono::steady_clock::now();
        microseconds.push_back(std::chrono::duration<double, std::micro>(stop - start).count());
    }
    gpu.synchronise();
    return microseconds;
}

double cold_compile_milliseconds(const Gpu& gpu, const AttentionProblem& problem,
                                 const TileConfig& config) {
    const std::string nvrtc_path = with_environment({}).nvrtc_path;
    compiler::KernelStore store({.nvrtc_path = nvrtc_path, .cache_directory = {}});
    const auto chain = attention::backward_chain(problem, config, gpu.device().properties().target);
    return store.get(chain[1].request).kernel->compile_milliseconds;
}

}  // namespace

AttentionProblem host_time_problem(const TileConfig& config, DataType dtype) {
    const std::int64_t seqlen = std::lcm<std::int64_t>(config.block_q, config.block_kv);
    return {.batch = 1,
            .heads = 1,
            .seqlen_q = seqlen,
            .seqlen_kv = seqlen,
            .head_dim = 128,
            .causal = true,
            .dtype = dtype};
}

HostTime measure_host_time(Gpu& gpu, SupportKernels& support, const NamedConfig& kernel,
                           DataType dtype, int calls) {
    // Of "default" a length that the tiles of every family divide.
    const AttentionProblem problem =
        host_time_problem(kernel.is_default() ? kernel_preset("wgmma") : kernel.config, dtype);
    const TileConfig config = config_for(kernel, problem, gpu.device().properties().target);
    const auto plan = gpu.runtime().backward(problem, config);
    ProblemData data(support, problem);
    data.randomise(1);
    const BackwardTensors tensors = data.tensors();
    const std::size_t bytes = plan->workspace_bytes();
    void* const workspace = data.workspace(bytes);
    const ReadyChain chain(gpu, data, config, workspace);

    HostTime result{.kernel = kernel.name, .problem = problem};
    result.run_microseconds =
        time_calls(gpu, calls, [&] { plan->run(tensors, workspace, bytes, gpu.stream()); });
    result.launch_microseconds = time_calls(gpu, calls, [&] { chain.launch(); });
    result.cold_compile_milliseconds = cold_compile_milliseconds(gpu, problem, config);
    return result;
}

}  // namespace backlight::tool
