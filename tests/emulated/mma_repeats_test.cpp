// Kernels whose products are repeated with zeros, for measuring: the same gradients.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "emulated_test_support.hpp"
#include "ready_chain.hpp"
#include "tensor_rate_loop.hpp"

namespace backlight::test {

namespace {

using tool::ChainPart;
using tool::ReadyChain;

/// A chain with repeated products, as a plan.
class RepeatedPlan final : public BackwardPlan {
  public:
    RepeatedPlan(EmulatedSession& session, tool::ProblemCheck& check, const TileConfig& config,
                 int mma_repeats, bool in_parts)
        : session_(session),
          check_(check),
          config_(config),
          mma_repeats_(mma_repeats),
          in_parts_(in_parts) {}

    const AttentionProblem& problem() const noexcept override { return check_.data().problem(); }
    const TileConfig& config() const noexcept override { return config_; }
    std::size_t workspace_bytes() const noexcept override {
        return ReadyChain::workspace_bytes(problem(), config_);
    }
    const std::vector<KernelResources>& resources() const noexcept override { return resources_; }
    void run(const BackwardTensors& /*tensors*/, void* workspace, std::size_t /*bytes*/,
             Stream /*stream*/) const override {
        const ReadyChain chain(session_.session(), check_.data(), config_, workspace, mma_repeats_);
        if (!in_parts_) {
            chain.launch();
            return;
        }
        for (const ChainPart part :
             {ChainPart::before_main, ChainPart::main, ChainPart::after_main}) {
            chain.launch(part);
        }
    }

  private:
    EmulatedSession& session_;
    tool::ProblemCheck& check_;
    TileConfig config_;
    int mma_repeats_;
    bool in_parts_;
    std::vector<KernelResources> resources_;
};

/// Right, and with the same bits of dK and dV as the kernel without repeats.
void require_repeats_alike(EmulatedSession& session, tool::CheckedProblem problem,
                           const TileConfig& config, int mma_repeats) {
    problem.repeats = 1;
    tool::ProblemCheck check(session.kernels(), problem);
    const std::string name = to_string(config);
    CAPTURE(name);
    SameBits bits;
    require_passed(check.check(name, config));
    bits.check(check.data().gradients());
    for (const bool in_parts : {false, true}) {
        const RepeatedPlan plan(session, check, config, mma_repeats, in_parts);
        require_passed(check.check(name + " repeated", plan));
        bits.check(check.data().gradients());
    }
}

TEST_CASE("products repeated with zeros leave the gradients of v1 to v5 as they are") {
    EmulatedSession session;
    for (const char* preset : {"v1", "v2", "v3", "v4", "v5"}) {
        for (const bool causal : {false, true}) {
            require_repeats_alike(session, square_problem(1, 2, 128, 128, causal),
                                  kernel_preset(preset), 5);
        }
    }
}

TEST_CASE("products repeated with zeros leave gradients as they are in fp16 and at head_dim 64") {
    EmulatedSession session;
    TileConfig wide = kernel_preset("v4");
    wide.block_q = 64;
    for (const TileConfig& config : {kernel_preset("v3"), kernel_preset("v4"), wide}) {
        require_repeats_alike(session, square_problem(1, 2, 128, 64, true, DataType::fp16), config,
                              2);
    }
}

TEST_CASE("the loop of products adds up to the same numbers however often they are repeated") {
    EmulatedSession session;
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        std::vector<std::vector<float>> sums;
        for (const int repeats : {1, 5}) {
            const tool::TensorRateLoop loop(session.session(), dtype, repeats, 3);
            loop.enqueue();
            CHECK(loop.clocks_per_product() > 0);
            sums.push_back(loop.sums());
        }
        CHECK(sums[0] == sums[1]);
        for (const float sum : sums[0]) {
            CHECK(std::isfinite(sum));
        }
        CHECK(sums[0][1] != 0);
    }
}

TEST_CASE("the loop counts 4096 operations for each product that is not of zeros") {
    EmulatedSession session;
    const int blocks = std::max(session.device().properties().multiprocessors, 1);
    for (const int repeats : {1, 5}) {
        const tool::TensorRateLoop loop(session.session(), DataType::bf16, repeats, 3);
        CHECK(loop.flops() == blocks * 8.0 * 8 * 3 * 4096);
    }
}

}  // namespace

}  // namespace backlight::test
