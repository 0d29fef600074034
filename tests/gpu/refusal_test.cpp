// What is refused leaves the GPU alone.
#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "backlight/error.hpp"
#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

/// A call's arguments, for a case to spoil.
struct Call {
    BackwardTensors tensors;
    void* workspace;
    std::size_t workspace_bytes;
};

struct Refusal {
    const char* what;
    std::function<void(Call&)> spoil;
    ErrorCode code;
    /// What the message must name.
    const char* field;
};

template <typename Pointer>
Pointer moved(Pointer pointer, std::size_t bytes) {
    return reinterpret_cast<Pointer>(reinterpret_cast<std::uintptr_t>(pointer) + bytes);
}

TEST_CASE("a refused run launches nothing and names the field") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    const AttentionProblem problem = square_problem(2, 3, 128, 64, true).problem;
    const auto plan = gpu.runtime().backward(problem);
    tool::ProblemData data(kernels, problem);
    data.randomise(7);

    constexpr ErrorCode invalid = ErrorCode::invalid_argument;
    const std::vector<Refusal> refusals = {
        {"a null input", [](Call& c) { c.tensors.q.data = nullptr; }, invalid, "q.data"},
        {"a null output", [](Call& c) { c.tensors.d_v.data = nullptr; }, invalid, "d_v.data"},
        {"a null LSE", [](Call& c) { c.tensors.lse.data = nullptr; }, invalid, "lse.data"},
        {"a misaligned input", [](Call& c) { c.tensors.k.data = moved(c.tensors.k.data, 8); },
         invalid, "k.data"},
        {"a misaligned output", [](Call& c) { c.tensors.d_q.data = moved(c.tensors.d_q.data, 2); },
         invalid, "d_q.data"},
        {"a misaligned LSE", [](Call& c) { c.tensors.lse.data = moved(c.tensors.lse.data, 2); },
         invalid, "lse.data"},
        {"a stride of no whole 16 bytes", [](Call& c) { c.tensors.v.stride_seqlen += 4; }, invalid,
         "v.stride_seqlen"},
        {"a negative stride", [](Call& c) { c.tensors.d_o.stride_head *= -1; }, invalid,
         "d_o.stride_head"},
        {"a stride of 2^39", [](Call& c) { c.tensors.o.stride_batch = std::int64_t{1} << 39; },
         invalid, "o.stride_batch"},
        {"an output that overlaps itself", [](Call& c) { c.tensors.d_k.stride_seqlen = 8; },
         invalid, "d_k.stride_seqlen"},
        {"an output in place of an input",
         [](Call& c) { c.tensors.d_k.data = const_cast<void*>(c.tensors.k.data); }, invalid,
         "d_k.data"},
        {"two outputs in one place", [](Call& c) { c.tensors.d_v.data = c.tensors.d_k.data; },
         invalid, "d_v.data"},
        {"no workspace", [](Call& c) { c.workspace = nullptr; }, invalid, "workspace"},
        {"a misaligned workspace", [](Call& c) { c.workspace = moved(c.workspace, 16); }, invalid,
         "workspace"},
        {"a workspace one byte short", [](Call& c) { --c.workspace_bytes; },
         ErrorCode::workspace_too_small, "workspace_bytes"},
    };
    const std::size_t bytes = plan->workspace_bytes();
    for (const Refusal& refusal : refusals) {
        CAPTURE(refusal.what);
        Call call{data.tensors(), data.workspace(bytes), bytes};
        refusal.spoil(call);
        data.poison();
        bool refused = false;
        try {
            plan->run(call.tensors, call.workspace, call.workspace_bytes, gpu.stream());
        } catch (const Error& error) {
            refused = true;
            CHECK(error.code() == refusal.code);
            CHECK(std::string_view(error.what()).find(refusal.field) != std::string_view::npos);
        }
        CHECK(refused);
        gpu.synchronise();
        const auto gradients = data.gradients();
        for (const auto* outputs : {&gradients.d_q, &gradients.d_k, &gradients.d_v}) {
            CHECK(std::ranges::all_of(*outputs, [](std::uint16_t bits) { return bits == 0xffff; }));
        }
        // The delta kernel, the first of the chain, would have written the workspace.
        std::vector<std::byte> scratch(bytes);
        gpu.device().copy_to_host(scratch, data.workspace(bytes));
        CHECK(std::ranges::all_of(scratch, [](std::byte byte) { return byte == std::byte{0xff}; }));
    }

    // The same call, unspoilt, works: the refusals were for what was spoilt.
    data.run(*plan);
    const auto gradients = data.gradients();
    CHECK(std::ranges::none_of(gradients.d_q, [](std::uint16_t bits) { return bits == 0xffff; }));
}

TEST_CASE("a configuration whose shared memory exceeds the card's is refused with both sizes") {
    tool::Gpu gpu;
    TileConfig config;
    config.block_q = 256;
    config.block_kv = 256;
    config.warps = 16;
    const AttentionProblem problem = square_problem(1, 1, 256, 128, true).problem;
    try {
        gpu.runtime().backward(problem, config);
        FAIL("the configuration was accepted");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::shared_memory_exceeded);
        const std::string needed = std::to_string(shared_memory_bytes(config, 128));
        CHECK(std::string_view(error.what()).find(needed) != std::string_view::npos);
    }
    // And the Runtime still works.
    CHECK(gpu.runtime().backward(problem) != nullptr);
}

TEST_CASE("a device that does not exist is refused with the number there are") {
    RuntimeOptions options;
    options.device = 1000;
    try {
        const Runtime runtime(options);
        FAIL("device 1000 was accepted");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::device_not_found);
        CHECK(std::string_view(error.what()).find("1000") != std::string_view::npos);
    }
}

}  // namespace

}  // namespace backlight::test
