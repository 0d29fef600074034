// Races that show only where the GPU is full: dK and dV are sums in a fixed order, and so any other
// bit is one; in deterministic problems dQ is another.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/fitted_config.hpp"
#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

struct FullProblem {
    std::int64_t batch, heads, seqlen, head_dim;
    bool causal;

    tool::CheckedProblem checked(bool deterministic) const {
        tool::CheckedProblem problem = square_problem(batch, heads, seqlen, head_dim, causal);
        problem.problem.deterministic = deterministic;
        return problem;
    }
};

// All of more blocks than a card runs at a time, two and three a multiprocessor.
constexpr std::array full_problems = {
    FullProblem{16, 16, 1024, 128, false},
    FullProblem{8, 16, 4096, 128, true},
    FullProblem{4, 32, 4096, 64, true},
    FullProblem{8, 32, 512, 64, false},
};

/// dK and dV, and dQ of a deterministic problem, as the outputs held them, kept on the device: to
/// copy those of every run to the host takes many times as long as the runs. Of tensors without
/// gaps.
class KeptGradients {
  public:
    KeptGradients(tool::SupportKernels& kernels, const tool::ProblemData& data)
        : kernels_(kernels), differences_(kernels.session(), sizeof(std::uint32_t)) {
        const auto gradients = data.gradients();
        const BackwardTensors tensors = data.tensors();
        keep(gradients.d_k, tensors.d_k.data);
        keep(gradients.d_v, tensors.d_v.data);
        if (data.problem().deterministic) {
            keep(gradients.d_q, tensors.d_q.data);
        }
    }

    /// Whether the outputs hold other bits by now.
    bool differ() {
        differences_.fill(0, kernels_.session().stream());
        for (const auto& [kept, output] : kept_) {
            kernels_.count_differences(kept.data(), output, kept.bytes(),
                                       differences_.as<std::uint32_t>());
        }
        kernels_.session().synchronise();
        return differences_.download_all<std::uint32_t>().front() != 0;
    }

  private:
    void keep(const std::vector<std::uint16_t>& bits, void* output) {
        kept_.emplace_back(
            tool::DeviceBuffer(kernels_.session(), bits.size() * sizeof(std::uint16_t)), output);
        kept_.back().first.upload(bits);
    }

    tool::SupportKernels& kernels_;
    std::vector<std::pair<tool::DeviceBuffer, void*>> kept_;
    tool::DeviceBuffer differences_;
};

void run_often(tool::SupportKernels& kernels, tool::ProblemCheck& check, const TileConfig& config,
               int runs_each) {
    const auto plan = kernels.session().runtime().backward(check.data().problem(), config);
    require_passed(check.check(to_string(config), *plan));
    KeptGradients first(kernels, check.data());
    int different = 0;
    for (int run = 0; run < runs_each; ++run) {
        // Several in a row, so that the blocks of one meet those of the next.
        constexpr int in_a_row = 4;
        check.data().poison();
        for (int i = 0; i < in_a_row; ++i) {
            check.data().run(*plan);
        }
        different += first.differ() ? 1 : 0;
    }
    CHECK_MESSAGE(different == 0, different << " of " << runs_each
                                            << " runs differ: " << to_string(config) << " on "
                                            << to_string(check.data().problem()));
}

/// Every problem with each of the configurations that it takes, so many times, against the first
/// run and fp32, which is computed once for all.
void run_often(std::vector<tool::CheckedProblem> problems, const std::vector<TileConfig>& configs,
               int runs_each) {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const device::Target& target = gpu.device().properties().target;
    for (tool::CheckedProblem& problem : problems) {
        problem.reference = tool::Reference::device_fp32;
        problem.repeats = 1;
        tool::ProblemCheck check(kernels, problem);
        for (const TileConfig& preset : configs) {
            const TileConfig config = attention::fitted_config(preset, problem.problem, target);
            if (tuning::is_legal(config, problem.problem, target)) {
                run_often(kernels, check, config, runs_each);
            }
        }
    }
}

std::vector<tool::CheckedProblem> all_full(bool deterministic) {
    std::vector<tool::CheckedProblem> problems;
    for (const FullProblem& full : full_problems) {
        problems.push_back(full.checked(deterministic));
    }
    return problems;
}

/// Tiles of which each visits others than its neighbours do.
tool::CheckedProblem uneven() {
    tool::CheckedProblem problem = FullProblem{4, 16, 2000, 128, false}.checked(true);
    problem.problem.heads_kv = 4;
    problem.problem.seqlen_kv = 2300;
    problem.problem.window_left = 700;
    problem.problem.window_right = 33;
    return problem;
}

TileConfig resident(int block_q, int heads_per_group) {
    TileConfig config = kernel_preset("v4");
    config.block_q = block_q;
    config.heads_per_group = heads_per_group;
    return config;
}

TEST_CASE(
    "the register-resident kernel gives the same bits of dK and dV whenever the GPU is full") {
    run_often(all_full(false), {resident(32, 1), resident(32, 8), resident(64, 8)}, 25);
}

TileConfig wgmma(int stages, int heads_per_group) {
    TileConfig config = kernel_preset("wgmma");
    config.stages = stages;
    config.heads_per_group = heads_per_group;
    return config;
}

TEST_CASE("deterministic problems give the same bits of all gradients whenever the GPU is full") {
    TileConfig converting = resident(32, 4);
    converting.converts_d_q = true;
    std::vector<tool::CheckedProblem> problems = all_full(true);
    problems.push_back(uneven());
    run_often(problems,
              {resident(32, 1), resident(32, 8), resident(64, 8), converting, wgmma(2, 1),
               wgmma(2, 8), wgmma(3, 8)},
              25);
}
TEST_CASE("deterministic problems of wide heads give the same bits whenever the GPU is full") {
    std::vector<tool::CheckedProblem> problems;
    for (const std::int64_t head_dim : {192, 256}) {
        problems.push_back(FullProblem{4, 16, 1024, head_dim, head_dim == 192}.checked(true));
    }
    problems.push_back(uneven());
    problems.back().problem.head_dim = 192;
    run_often(problems, {resident(32, 1), resident(32, 8)}, 25);
}

TEST_SUITE("long") {
    TEST_CASE("the register-resident kernel gives the same bits in a thousand runs of each shape") {
        run_often(all_full(false),
                  {kernel_preset("v4"), resident(64, kernel_preset("v4").heads_per_group)}, 1000);
    }
}

}  // namespace

}  // namespace backlight::test
