// Gradients against references: presets, other configurations, constant lengths, strides, repeats.
#include <optional>
#include <vector>

#include "attention/workspace.hpp"
#include "gpu_test_support.hpp"

namespace backlight::test {

namespace {

using tool::Layout;
using verification::InputKind;

/// Every preset that takes the problem.
void check_presets(tool::SupportKernels& kernels, const tool::CheckedProblem& problem) {
    tool::ProblemCheck check(kernels, problem);
    for (const KernelPreset& preset : presets_for(kernels, problem.problem)) {
        require_passed(check.check(std::string(preset.name), preset.config));
    }
}

TEST_CASE("every preset matches fp64 at small shapes, types and masks") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        for (const std::int64_t head_dim : {64, 128}) {
            for (const bool causal : {false, true}) {
                for (const std::int64_t seqlen : {64, 192, 256}) {
                    check_presets(kernels, square_problem(2, 3, seqlen, head_dim, causal, dtype));
                }
            }
        }
    }
}

TEST_CASE("every preset matches fp64 on inputs that cancel, overflow or concentrate") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const InputKind kind : verification::input_kinds) {
        for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
            for (const bool causal : {false, true}) {
                tool::CheckedProblem problem = square_problem(1, 2, 256, 128, causal, dtype);
                problem.inputs = kind;
                check_presets(kernels, problem);
            }
        }
    }
}

TEST_CASE("queries and keys of different numbers match fp64") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair{64, 384}, std::pair{320, 128}}) {
        tool::CheckedProblem problem = square_problem(2, 3, seqlen_q, 128, false);
        problem.problem.seqlen_kv = seqlen_kv;
        check_presets(kernels, problem);
    }
}

TEST_CASE("wgmma: many heads that share the places of the accumulator match fp32") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    if (gpu.device().properties().target.compute_major != 9) {
        MESSAGE("skipped: wgmma is Hopper's");
        return;
    }
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {false, true}) {
            tool::CheckedProblem problem = square_problem(25, 41, 256, head_dim, causal);
            problem.reference = tool::Reference::device_fp32;
            // The reference is computed once for both.
            tool::ProblemCheck check(kernels, problem);
            for (const int heads_per_group : {1, 4}) {
                TileConfig config = kernel_preset("wgmma");
                config.heads_per_group = heads_per_group;
                // Each place serves several heads, and the last group is not full.
                REQUIRE(attention::WorkspaceLayout(problem.problem, config).accumulator_heads <
                        25 * 41 / 2);
                require_passed(check.check(to_string(config), config));
            }
        }
    }
}

TEST_CASE("softmax scales other than the default, negative and zero match fp64") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const float scale : {0.03F, -0.1F, 0.0F}) {
        for (const bool causal : {false, true}) {
            tool::CheckedProblem problem = square_problem(1, 2, 256, 64, causal);
            problem.problem.softmax_scale = scale;
            check_presets(kernels, problem);
        }
    }
}

TEST_CASE("strides of (batch, seqlen, heads, head_dim) and of a packed QKV tensor match fp64") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const Layout layout : {Layout::bshd, Layout::packed_qkv}) {
        for (const std::int64_t head_dim : {64, 128}) {
            tool::CheckedProblem problem = square_problem(2, 3, 256, head_dim, true);
            problem.layout = layout;
            check_presets(kernels, problem);
        }
    }
}

TEST_CASE("any configuration that the geometry allows matches fp64") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const std::int64_t head_dim : {64, 128}) {
        for (const bool causal : {false, true}) {
            // A multiple of every block size above.
            tool::ProblemCheck check(kernels, square_problem(1, 2, 384, head_dim, causal));
            for (const Geometry& geometry : geometries) {
                const TileConfig config = tile_config(geometry);
                if (shared_memory_bytes(config, head_dim) >
                    gpu.device().properties().target.shared_bytes_per_block) {
                    continue;
                }
                require_passed(check.check(to_string(config), config));
            }
        }
    }
}

TEST_CASE("constant sequence lengths give the bits of dK and dV that run-time lengths give") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const bool causal : {false, true}) {
        tool::ProblemCheck check(kernels, square_problem(2, 2, 256, 128, causal));
        require_length_modes_alike(kernels, check);
    }
}

TEST_CASE("programmatic dependent launch changes no bit of dK and dV, and dQ stays right") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    tool::CheckedProblem problem = square_problem(2, 4, 512, 128, true);
    problem.repeats = 10;
    tool::ProblemCheck check(kernels, problem);
    require_launches_alike(kernels, check);
}

TEST_CASE("fifty runs at 512 and 4096 give equal bits of dK and dV, within 3e-3 of fp32") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const auto& [heads, seqlen] : {std::pair{4, 512}, std::pair{2, 4096}}) {
        for (const bool causal : {false, true}) {
            tool::CheckedProblem problem = square_problem(1, heads, seqlen, 128, causal);
            problem.reference = tool::Reference::device_fp32;
            problem.repeats = 50;
            for (const tool::Tolerance& tolerance : tool::tolerances(problem)) {
                REQUIRE(tolerance.relative_l2 == 3e-3);
            }
            check_presets(kernels, problem);
        }
    }
}

}  // namespace

}  // namespace backlight::test
