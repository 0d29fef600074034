// Many schedules of the unchanged kernels: none is reported, and none changes dK and dV.
#include <fmt/format.h>
#include <array>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "emulated_test_support.hpp"

namespace backlight::test {

namespace {

using Bits = std::vector<std::uint16_t>;

/// Every preset of the family on two key tiles of its own and two query tiles or more, under the
/// seeds 1 to `seeds`.
void run_schedules(KernelFamily family, std::int64_t head_dim, bool causal, std::uint64_t seeds) {
    EmulatedSession session;
    const std::int64_t seqlen = family == KernelFamily::wgmma ? 256 : 128;
    const tool::CheckedProblem problem = square_problem(1, 1, seqlen, head_dim, causal);
    for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
        if (preset.config.family == family) {
            require_same_bits(session, problem, preset.config, seeds);
        }
    }
}

// Of mma three presets each, and of mma_resident one: 1,344 schedules in all.
constexpr std::uint64_t seeds_each = 84;
// A step of wgmma is one of 512 threads; its blocks wait for each other, too.
constexpr std::uint64_t wgmma_seeds_each = 25;

TEST_CASE("no schedule of head_dim 64 without a mask is reported or changes dK and dV") {
    run_schedules(KernelFamily::mma, 64, false, seeds_each);
    run_schedules(KernelFamily::mma_resident, 64, false, seeds_each);
    run_schedules(KernelFamily::wgmma, 64, false, wgmma_seeds_each);
}
TEST_CASE("no schedule of head_dim 64 with a causal mask is reported or changes dK and dV") {
    run_schedules(KernelFamily::mma, 64, true, seeds_each);
    run_schedules(KernelFamily::mma_resident, 64, true, seeds_each);
    run_schedules(KernelFamily::wgmma, 64, true, wgmma_seeds_each);
}
TEST_CASE("no schedule of head_dim 128 without a mask is reported or changes dK and dV") {
    run_schedules(KernelFamily::mma, 128, false, seeds_each);
    run_schedules(KernelFamily::mma_resident, 128, false, seeds_each);
    run_schedules(KernelFamily::wgmma, 128, false, wgmma_seeds_each);
}
TEST_CASE("no schedule of head_dim 128 with a causal mask is reported or changes dK and dV") {
    run_schedules(KernelFamily::mma, 128, true, seeds_each);
    run_schedules(KernelFamily::mma_resident, 128, true, seeds_each);
    run_schedules(KernelFamily::wgmma, 128, true, wgmma_seeds_each);
}

TEST_SUITE("long") {
    TEST_CASE("no schedule out of thousands is reported or changes dK and dV") {
        for (const std::int64_t head_dim : {64, 128}) {
            for (const bool causal : {false, true}) {
                run_schedules(KernelFamily::mma, head_dim, causal, 200);
                run_schedules(KernelFamily::mma_resident, head_dim, causal, 200);
                run_schedules(KernelFamily::wgmma, head_dim, causal, 200);
            }
        }
    }
}

TEST_CASE("neither host threads nor the order of the grid change dK and dV") {
    using emulation::GridOrder;
    for (const KernelPreset& preset : kernel_presets()) {
        require_same_bits(
            square_problem(1, 2, 256, 64, true), preset.config,
            std::array{GridOrder::ascending, GridOrder::descending, GridOrder::random},
            std::array{1, 2, 5});
    }
}

/// A problem whose dQ has four contributions an element, and so depends on their order.
class SumOrder {
  public:
    explicit SumOrder(const EmulationOptions& options)
        : session_(options),
          check_(session_.kernels(), problem()),
          plan_(session_.runtime().backward(problem().problem, kernel_preset("v2"))) {}

    /// What a run leaves in the workspace, dQ in fp32 in it, and dQ.
    std::pair<std::vector<std::byte>, Bits> run() {
        require_passed(check_.check("v2", *plan_));
        std::vector<std::byte> workspace(plan_->workspace_bytes());
        session_.device().copy_to_host(workspace, check_.data().workspace(workspace.size()));
        return {std::move(workspace), check_.data().gradients().d_q};
    }
    std::pair<std::vector<std::byte>, Bits> run(std::uint64_t seed) {
        session_.reseed(seed);
        return run();
    }

  private:
    static tool::CheckedProblem problem() {
        tool::CheckedProblem problem = square_problem(1, 1, 256, 64, false);
        problem.repeats = 1;
        return problem;
    }

    EmulatedSession session_;
    tool::ProblemCheck check_;
    std::shared_ptr<const BackwardPlan> plan_;
};

TEST_CASE("a seed replays bit for bit on one host thread and others sum in another order") {
    SumOrder reused(one_thread());
    std::set<std::vector<std::byte>> different;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        const auto first = reused.run(seed);
        different.insert(first.first);
        if (seed % 4 == 1) {
            CHECK(reused.run(seed) == first);
            // A device made for the seed does what one that got it later does.
            CHECK(SumOrder(one_thread(seed)).run() == first);
        }
    }
    CHECK(different.size() > 4);
}

TEST_CASE("a fault replays to the letter and other seeds find it elsewhere") {
    const SourceEdit no_barrier{"attention_backward_mma.cu",
                                "// dS is whole.\n        __syncthreads();", "// dS is whole.\n"};
    const ProblemRun run{.problem = square_problem(1, 2, 128, 64, false),
                         .config = kernel_preset("v2")};
    tool::CheckedProblem once = run.problem;
    once.repeats = 1;
    EmulatedSession session(one_thread(), {no_barrier});
    tool::ProblemCheck check(session.kernels(), once);
    const auto message = [&](tool::ProblemCheck& on) {
        return outcome_of([&] {
                   on.check("v2", run.config);
                   return std::string();
               })
            .message;
    };
    std::set<std::string> places;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        session.reseed(seed);
        const std::string first = message(check);
        CHECK_MESSAGE(first.find(fmt::format("with seed {}: ", seed)) != std::string::npos, first);
        session.reseed(seed);
        CHECK(message(check) == first);
        places.insert(first.substr(first.find(": ")));
    }
    CHECK(places.size() > 4);

    EmulatedSession fresh(one_thread(8), {no_barrier});
    tool::ProblemCheck fresh_check(fresh.kernels(), once);
    session.reseed(8);
    CHECK(message(fresh_check) == message(check));
}

TEST_CASE("two heads of 256 queries and keys take less than five seconds once compiled") {
    tool::CheckedProblem problem = square_problem(1, 2, 256, 64, true);
    problem.repeats = 1;
    EmulatedSession session;
    tool::ProblemCheck check(session.kernels(), problem);
    double slowest = 0;
    for (const KernelPreset& preset : kernel_presets()) {
        const auto plan = session.runtime().backward(problem.problem, preset.config);
        const auto start = std::chrono::steady_clock::now();
        require_passed(check.check(std::string(preset.name), *plan));
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        slowest = std::max(slowest, seconds.count());
    }
    MESSAGE("slowest preset on one host thread: " << slowest << " s");
    CHECK(slowest < 5);
}

TEST_CASE("a main kernel that allows the next one at its start is right all the same") {
    // What follows waits for the whole grid, not for this permission.
    EmulatedSession session(one_thread(),
                            {{"attention_backward_mma.cu", "    allow_next_kernel();\n", ""},
                             {"attention_backward_mma.cu", "    // Q, K, V and dO are the caller's",
                              "    allow_next_kernel();\n    // Q, K, V and dO are the caller's"}});
    const Outcome outcome = run_seeds(
        session, {.problem = square_problem(1, 2, 128, 64, true), .config = kernel_preset("v3")},
        20);
    CHECK_MESSAGE(outcome.passed(), to_string(outcome));
}

}  // namespace

}  // namespace backlight::test
