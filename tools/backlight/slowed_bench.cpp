#include "slowed_bench.hpp"

#include <algorithm>
#include <utility>

#include "problem_data.hpp"
#include "ready_chain.hpp"

namespace backlight::tool {

SlowedBench::SlowedBench(Gpu& gpu, SupportKernels& support, const Nvml& nvml,
                         EmulatedTensorRate rate, DataType dtype)
    : gpu_(gpu),
      support_(support),
      nvml_(nvml),
      rate_(std::move(rate)),
      native_(gpu, dtype, 1),
      slowed_(gpu, dtype, rate_.mma_repeats) {}

SlowedRate SlowedBench::calibrate() const {
    const auto measured = [](const TensorRateLoop& loop) {
        constexpr int runs = 3;  // the last counts: the clock has risen by then
        for (int i = 0; i < runs; ++i) {
            loop.enqueue();
        }
        return loop.clocks_per_product();
    };
    return {.rate = rate_,
            .measured_device_clocks = measured(native_),
            .measured_slowed_clocks = measured(slowed_)};
}

ProblemResult SlowedBench::measure(const AttentionProblem& problem,
                                   const std::vector<NamedConfig>& configs, Layout layout,
                                   const TimingOptions& timing) const {
    ProblemData data(support_, problem, layout);
    data.randomise(1);
    ProblemResult result{.problem = problem, .layout = to_string(layout)};

    std::size_t workspace_bytes = 0;
    for (const NamedConfig& named : configs) {
        workspace_bytes =
            std::max(workspace_bytes, ReadyChain::workspace_bytes(problem, named.config));
    }
    void* const workspace = data.workspace(workspace_bytes);
    std::vector<ReadyChain> chains;
    chains.reserve(configs.size());
    for (const NamedConfig& named : configs) {
        chains.emplace_back(gpu_, data, named.config, workspace, rate_.mma_repeats);
        result.variants.push_back(
            {.name = named.name,
             .config = named.config,
             .resources = chains.back().resources(),
             .workspace_bytes = ReadyChain::workspace_bytes(problem, named.config),
             .main_kernel =
                 MainKernelResult{.executed_flops = executed_flops(problem, named.config)}});
    }

    std::vector<TimedWork> works;
    for (std::size_t i = 0; i < configs.size(); ++i) {
        const ReadyChain& chain = chains[i];
        works.push_back({.name = configs[i].name, .enqueue = [&chain] { chain.launch(); }});
        works.push_back({.name = configs[i].name + " main",
                         .enqueue = [&chain] { chain.launch(ChainPart::main); },
                         .enqueue_before = [&chain] { chain.launch(ChainPart::before_main); },
                         .enqueue_after = [&chain] { chain.launch(ChainPart::after_main); }});
    }
    works.push_back({.name = "tensor rate", .enqueue = [this] { slowed_.enqueue(); }});

    auto samples = time_interleaved(gpu_, support_, nvml_, works, timing);
    for (std::size_t i = 0; i < configs.size(); ++i) {
        result.variants[i].samples = std::move(samples[2 * i]);
        result.variants[i].main_kernel->samples = std::move(samples[2 * i + 1]);
    }
    result.tensor_rate =
        TensorRateResult{.flops = slowed_.flops(), .samples = std::move(samples.back())};
    return result;
}

}  // namespace backlight::tool
