// Runs one scenario in a process with AddressSanitizer, whose kernels are compiled with it: a test
// starts it and reads what the sanitizer says. Nothing else of the process is instrumented.
#include <fmt/format.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "arguments/attention_backward.h"
#include "compiler/kernel_store.hpp"
#include "emulation/emulated_runtime.hpp"
#include "runtime_implementation.hpp"
#include "session/device_buffer.hpp"
#include "session/session.hpp"
#include "verification/inputs.hpp"

extern "C" const char* __asan_default_options() {
    // Threads of kernels have stacks of their own, which the other detectors do not know.
    return "detect_stack_use_after_return=0:detect_leaks=0";
}

namespace backlight {

namespace {

using emulation::SourceEdit;
using tool::DeviceBuffer;

Runtime emulated_runtime(std::vector<SourceEdit> edits = {}) {
    return emulation::make_emulated_runtime(
        {.host_threads = 1}, {.cache_directory = BACKLIGHT_EMULATED_CACHE_DIR}, std::move(edits));
}

/// The whole chain on tensors of exactly their size: no byte between them that an access could hit.
void run_chain(std::vector<SourceEdit> edits) {
    tool::Session session(emulated_runtime(std::move(edits)));
    const AttentionProblem problem{
        .batch = 1, .heads = 2, .seqlen_q = 128, .seqlen_kv = 128, .head_dim = 64, .causal = true};
    const auto strides = bhsd_strides(problem.heads, problem.seqlen_q, problem.head_dim);
    const auto inputs = verification::make_inputs(problem, verification::InputKind::normal, 1);
    std::vector<DeviceBuffer> buffers;
    const auto tensor = [&](const std::vector<std::uint16_t>& values) {
        buffers.emplace_back(session, values.size() * sizeof(std::uint16_t));
        buffers.back().upload(values);
        return TensorView{buffers.back().data(), strides[0], strides[1], strides[2]};
    };
    const std::vector<std::uint16_t> zeros(inputs.q.size());
    BackwardTensors tensors{.q = tensor(inputs.q),
                            .k = tensor(inputs.k),
                            .v = tensor(inputs.v),
                            .o = tensor(zeros),
                            .d_o = tensor(inputs.d_o),
                            .lse = {},
                            .d_q = tensor(zeros),
                            .d_k = tensor(zeros),
                            .d_v = tensor(zeros)};
    const auto rows = static_cast<std::size_t>(problem.heads * problem.seqlen_q);
    DeviceBuffer lse(session, rows * sizeof(float));
    lse.upload(std::vector<float>(rows));
    tensors.lse = {lse.as<float>(), problem.heads * problem.seqlen_q, problem.seqlen_q};
    const auto plan = session.runtime().backward(problem, kernel_preset("v3"));
    const DeviceBuffer workspace(session, plan->workspace_bytes());
    plan->run(tensors, workspace.data(), workspace.bytes(), session.stream());
    session.synchronise();
}

constexpr const char* word_kernel = R"(
#include "primitives/types.cuh"
namespace backlight::kernel {
struct WordArguments {
    uint32_t* out;
    int first_word;
};
extern "C" __global__ void read_words(const __grid_constant__ WordArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    auto* words = reinterpret_cast<uint32_t*>(shared_memory);
    arguments.out[threadIdx.x] = words[arguments.first_word + threadIdx.x];
}
}
)";

/// A kernel whose 32 threads read a word each of a plain array in 256 bytes of shared memory.
void read_shared_words(int first_word) {
    struct {
        void* out;
        int first_word;
    } arguments{.out = nullptr, .first_word = first_word};
    constexpr std::uint32_t shared_bytes = 256;
    tool::Session session(emulated_runtime());
    const auto compiled = session.runtime().implementation().store().get(
        {.source = "read_words.cu",
         .entry = "read_words",
         .specialisation = {},
         .target = session.device().properties().target,
         .text = word_kernel});
    const auto kernel = session.device().load(compiled.kernel->cubin, "read_words", shared_bytes);
    const DeviceBuffer out(session, 32 * sizeof(std::uint32_t));
    arguments.out = out.data();
    kernel->launch({.threads = 32, .dynamic_shared_bytes = shared_bytes}, &arguments,
                   session.stream());
    session.synchronise();
}

const std::map<std::string, std::function<void()>> scenarios = {
    {"unchanged", [] { run_chain({}); }},
    {"delta_reads_beyond_lse",
     [] {
         run_chain({{"attention_backward_delta.cu", "? lse[row] :", "? lse[row + 1] :"}});
     }},
    {"main_writes_beyond_d_k",
     [] {
         run_chain({{"attention_backward_mma.cu", "index.head * arguments.d_k_strides.head +",
                     "index.head * arguments.d_k_strides.head + arguments.d_k_strides.seqlen +"}});
     }},
    {"last_shared_words", [] { read_shared_words(32); }},
    {"a_word_beyond_shared_memory", [] { read_shared_words(33); }},
};

}  // namespace

}  // namespace backlight

int main(int argc, char** argv) {
    const auto scenario = backlight::scenarios.find(argc == 2 ? argv[1] : "");
    if (scenario == backlight::scenarios.end()) {
        fmt::print(stderr, "there is no such scenario\n");
        return 2;
    }
    scenario->second();
    fmt::print("finished\n");
    return 0;
}
