// Races that show only where the GPU is full: dK and dV are sums in a fixed order, and so any other
// bit is one.
#include <array>

#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

struct FullProblem {
    std::int64_t batch, heads, seqlen, head_dim;
    bool causal;
};

// All of more blocks than a card runs at a time, two and three a multiprocessor.
constexpr std::array full_problems = {
    FullProblem{16, 16, 1024, 128, false},
    FullProblem{8, 16, 4096, 128, true},
    FullProblem{4, 32, 4096, 64, true},
    FullProblem{8, 32, 512, 64, false},
};

/// Every problem that the configuration takes, so many times, against the first run and fp32.
void run_often(const TileConfig& config, int runs_each) {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const device::Target& target = gpu.device().properties().target;
    for (const FullProblem& full : full_problems) {
        tool::CheckedProblem problem =
            square_problem(full.batch, full.heads, full.seqlen, full.head_dim, full.causal);
        if (!tuning::is_legal(config, problem.problem, target)) {
            continue;
        }
        problem.reference = tool::Reference::device_fp32;
        problem.repeats = 1;
        tool::ProblemCheck check(kernels, problem);
        const auto plan = gpu.runtime().backward(problem.problem, config);
        require_passed(check.check(to_string(config), *plan));
        const auto first = check.data().gradients();
        int different = 0;
        for (int run = 0; run < runs_each; ++run) {
            // Several in a row, so that the blocks of one meet those of the next.
            constexpr int in_a_row = 4;
            check.data().poison();
            for (int i = 0; i < in_a_row; ++i) {
                check.data().run(*plan);
            }
            gpu.synchronise();
            const auto gradients = check.data().gradients();
            different += gradients.d_k == first.d_k && gradients.d_v == first.d_v ? 0 : 1;
        }
        CHECK_MESSAGE(different == 0, different << " of " << runs_each
                                                << " runs differ: " << to_string(config) << " on "
                                                << to_string(problem.problem));
    }
}

TEST_CASE(
    "the register-resident kernel gives the same bits of dK and dV whenever the GPU is full") {
    constexpr int runs = 25;
    TileConfig config = kernel_preset("v4");
    for (const int heads : {1, 8}) {
        config.heads_per_group = heads;
        run_often(config, runs);
    }
    config.block_q = 64;
    run_often(config, runs);
}

TEST_SUITE("long") {
    TEST_CASE("the register-resident kernel gives the same bits in a thousand runs of each shape") {
        TileConfig config = kernel_preset("v4");
        run_often(config, 1000);
        config.block_q = 64;
        run_often(config, 1000);
    }
}

}  // namespace

}  // namespace backlight::test
