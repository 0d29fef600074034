// Offsets and grids beyond 32 and 16 bits, as public reports have them wrong: flash-attention 2611,
// pytorch 190857, ffpa-attn 299.
#include <string_view>

#include "backlight/error.hpp"
#include "far_tensors.hpp"
#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

/// Runs it, or says that the test is skipped where the GPU has not so much memory.
template <typename Run>
void where_there_is_memory(const Run& run) {
    try {
        run();
    } catch (const Error& error) {
        if (std::string_view(error.what()).find("OUT_OF_MEMORY") == std::string_view::npos) {
            throw;
        }
        MESSAGE("skipped: " << error.what());
    }
}

TEST_CASE("reported: element offsets beyond 2^31 in rows and batches change no gradient") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    // Half of the first batch's rows begin beyond 2^31 elements, all of the second's beyond 2^32:
    // 16 GiB.
    constexpr std::int64_t stride = std::int64_t{1} << 24;
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {false, true}) {
            const tool::CheckedProblem problem = square_problem(2, 2, 256, head_dim, causal);
            where_there_is_memory([&] { require_far_rows_alike(kernels, problem, stride); });
        }
    }
}

TEST_CASE("reported: more heads than 65535 have their gradients all") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const bool causal : {false, true}) {
        // 260 · 256 = 66560 heads.
        tool::CheckedProblem problem = square_problem(260, 256, 64, 64, causal);
        problem.reference = tool::Reference::device_fp32;
        problem.repeats = 1;
        where_there_is_memory([&] {
            tool::ProblemCheck check(kernels, problem);
            for (const KernelPreset& preset : presets_for(kernels, problem.problem)) {
                require_passed(check.check(std::string(preset.name), preset.config));
            }
        });
    }
}

}  // namespace

}  // namespace backlight::test
