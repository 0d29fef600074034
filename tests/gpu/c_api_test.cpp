// A backward through the C API gives the bits of the C++ one, directly and out of a graph.
#include <string>

#include "backlight/backlight.h"
#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

/// The call must have gone well.
void check_taken(backlight_status status) {
    REQUIRE_MESSAGE(status == BACKLIGHT_SUCCESS, backlight_status_name(status), ": ",
                    std::string(backlight_last_error_message()));
}

backlight_const_tensor in_c(const ConstTensorView& view) {
    return {view.data, view.stride_batch, view.stride_head, view.stride_seqlen};
}

backlight_tensor in_c(const TensorView& view) {
    return {view.data, view.stride_batch, view.stride_head, view.stride_seqlen};
}

backlight_tensors in_c(const BackwardTensors& tensors) {
    backlight_tensors c = BACKLIGHT_TENSORS_INIT;
    c.q = in_c(tensors.q);
    c.k = in_c(tensors.k);
    c.v = in_c(tensors.v);
    c.o = in_c(tensors.o);
    c.d_o = in_c(tensors.d_o);
    c.lse = {tensors.lse.data, tensors.lse.stride_batch, tensors.lse.stride_head};
    c.d_q = in_c(tensors.d_q);
    c.d_k = in_c(tensors.d_k);
    c.d_v = in_c(tensors.d_v);
    return c;
}

bool same(const tool::Gradients<std::uint16_t>& one, const tool::Gradients<std::uint16_t>& other) {
    return one.d_q == other.d_q && one.d_k == other.d_k && one.d_v == other.d_v;
}

TEST_CASE("a backward by the C API gives the bits of the C++ one directly and in a graph") {
    tool::Gpu gpu;
    const device::DriverApi& driver = gpu.driver();
    tool::SupportKernels kernels(gpu);
    AttentionProblem problem = square_problem(2, 3, 512, 128, true).problem;
    problem.deterministic = true;
    tool::ProblemData data(kernels, problem, tool::Layout::bshd);
    data.randomise(5);
    data.run(*gpu.runtime().backward(problem));
    const auto expected = data.gradients();
    data.poison_outputs();

    backlight_runtime* runtime = nullptr;
    backlight_plan* plan = nullptr;
    std::size_t workspace_bytes = 0;
    backlight_problem c_problem = BACKLIGHT_PROBLEM_INIT;
    c_problem.batch = 2;
    c_problem.heads = 3;
    c_problem.seqlen_q = c_problem.seqlen_kv = 512;
    c_problem.head_dim = 128;
    c_problem.causal = 1;
    c_problem.deterministic = 1;
    check_taken(backlight_runtime_create(nullptr, &runtime));
    check_taken(backlight_runtime_prepare(runtime, &c_problem, nullptr, &plan));
    check_taken(backlight_plan_workspace_bytes(plan, &workspace_bytes));
    void* workspace = data.workspace(workspace_bytes);
    const backlight_tensors tensors = in_c(data.tensors());
    CUstream stream = nullptr;
    driver.check(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "create a stream");
    gpu.synchronise();
    check_taken(backlight_plan_run(plan, &tensors, workspace, workspace_bytes, stream));
    driver.check(driver.cuStreamSynchronize(stream), "synchronise with a stream");
    CHECK(same(data.gradients(), expected));
    data.poison_outputs();
    gpu.synchronise();

    CUgraph graph = nullptr;
    CUgraphExec executable = nullptr;
    driver.check(driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL),
                 "begin a capture");
    check_taken(backlight_plan_run(plan, &tensors, workspace, workspace_bytes, stream));
    driver.check(driver.cuStreamEndCapture(stream, &graph), "end a capture");
    driver.check(driver.cuGraphInstantiateWithFlags(&executable, graph, 0), "instantiate a graph");
    driver.check(driver.cuGraphLaunch(executable, stream), "launch a graph");
    driver.check(driver.cuStreamSynchronize(stream), "synchronise with a stream");
    CHECK(same(data.gradients(), expected));
    driver.cuGraphExecDestroy(executable);
    driver.cuGraphDestroy(graph);
    driver.cuStreamDestroy(stream);
    backlight_plan_destroy(plan);
    backlight_runtime_destroy(runtime);
}

}  // namespace

}  // namespace backlight::test
