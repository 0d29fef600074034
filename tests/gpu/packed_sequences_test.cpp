// Packed sequences on a GPU: a captured run that is replayed with other sequences.
#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "gpu_test_support.hpp"
#include "gradient_values.hpp"
#include "tuning/search_space.hpp"
#include "verification/accuracy.hpp"
#include "verification/packing.hpp"

namespace backlight::test {

namespace {

using verification::PackingKind;

/// Sequences in other places, all of whose arrays are as long as the padded kind's.
verification::Packing reversed(const AttentionProblem& problem) {
    verification::Packing packing = verification::make_packing(problem, PackingKind::padded);
    std::vector<SequenceShape> shapes = packing.shapes();
    std::ranges::reverse(shapes);
    verification::Packing other = verification::pack(shapes);
    other.seqused_q = packing.seqused_q;
    other.seqused_kv = packing.seqused_kv;
    std::ranges::reverse(other.seqused_q);
    std::ranges::reverse(other.seqused_kv);
    return other;
}

void require_near(const tool::ProblemData& data,
                  const std::array<std::vector<std::uint16_t>, 3>& bits,
                  const std::array<std::vector<float>, 3>& references) {
    constexpr double tolerance = 5e-3;
    for (std::size_t i = 0; i < bits.size(); ++i) {
        CAPTURE(tool::gradient_names[i]);
        const std::vector<float> values =
            gradient_values(data.problem(), std::as_bytes(std::span(bits[i])));
        const verification::Accuracy accuracy = verification::measure_accuracy(
            values, std::span<const float>(references[i]), tool::gradient_shape(data.problem(), i));
        CHECK(accuracy.finite);
        CHECK(accuracy.relative_l2 < tolerance);
    }
}

TEST_CASE("a captured run of packed sequences serves other sequences when it is replayed") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    tool::SupportKernels kernels(gpu);
    AttentionProblem problem{.batch = 7,
                             .heads = 4,
                             .heads_kv = 2,
                             .seqlen_q = 700,
                             .seqlen_kv = 900,
                             .head_dim = 128,
                             .causal = true};
    const verification::Packing first = verification::make_packing(problem, PackingKind::padded);
    problem = verification::packed_problem(problem, first, 3);
    for (const char* preset : {"v4", "v5", "wgmma"}) {
        if (!tuning::is_legal(kernel_preset(preset), problem, gpu.device().properties().target)) {
            continue;
        }
        CAPTURE(preset);
        tool::ProblemData data(kernels, problem, tool::Layout::bshd, first);
        data.randomise(1);
        const auto plan = gpu.runtime().backward(problem, kernel_preset(preset));
        data.workspace(plan->workspace_bytes());
        gpu.synchronise();
        CUgraph graph = nullptr;
        CUgraphExec executable = nullptr;
        driver.check(driver.cuStreamBeginCapture(gpu.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL),
                     "begin a capture");
        data.run(*plan);
        driver.check(driver.cuStreamEndCapture(gpu.stream(), &graph), "end a capture");
        driver.check(driver.cuGraphInstantiateWithFlags(&executable, graph, 0),
                     "instantiate a graph");
        for (const verification::Packing& packing : {first, reversed(problem), first}) {
            data.set_packing(packing);
            data.randomise(2);
            tool::Gradients<float> reference = data.reference_gradients();
            data.poison();
            driver.check(driver.cuGraphLaunch(executable, gpu.stream()), "launch a graph");
            gpu.synchronise();
            const tool::Gradients<std::uint16_t> gradients = data.gradients();
            require_near(data, {gradients.d_q, gradients.d_k, gradients.d_v},
                         {reference.d_q, reference.d_k, reference.d_v});
            CHECK_FALSE(data.damaged_canary());
        }
        driver.cuGraphExecDestroy(executable);
        driver.cuGraphDestroy(graph);
    }
}

}  // namespace

}  // namespace backlight::test
