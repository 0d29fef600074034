// The referee and the random inputs themselves, against the host.
#include <array>
#include <cmath>
#include <vector>

#include "backlight/error.hpp"
#include "gpu_test_support.hpp"
#include "half_types.hpp"
#include "reference_comparison.hpp"

namespace backlight::test {

namespace {

using Operand = tool::ProblemData::Operand;

TEST_CASE("the fp32 reference matches fp64 on the host, at lengths and depths of no whole tile") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const auto& [seqlen, head_dim] :
         {std::pair{3, 64}, std::pair{31, 128}, std::pair{64, 64}, std::pair{77, 80},
          std::pair{200, 128}, std::pair{45, 40}, std::pair{70, 136}, std::pair{90, 256}}) {
        for (const bool causal : {false, true}) {
            compare_with_host(kernels, square_problem(2, 3, seqlen, head_dim, causal).problem);
        }
    }
    AttentionProblem problem = square_problem(2, 2, 40, 64, false, DataType::fp16).problem;
    problem.seqlen_kv = 101;
    problem.softmax_scale = -0.2F;
    compare_with_host(kernels, problem);
}

TEST_CASE("the fp32 reference matches fp64 on the host with every feature of a problem") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const AttentionProblem& problem : general_problems()) {
        compare_with_host(kernels, problem);
    }
}

TEST_CASE("the reference refuses what is no valid problem") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    tool::ProblemData data(kernels, square_problem(1, 1, 32, 264, false).problem);
    CHECK_THROWS_AS(data.randomise(1), Error);
}

TEST_CASE("random inputs have the moments of N(0, 1), and the same seed gives the same bits") {
    constexpr std::size_t count = 1 << 20;
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        const tool::DeviceBuffer buffer(gpu, count * sizeof(std::uint16_t));
        const auto draw = [&](std::uint64_t seed) {
            kernels.fill_normal(buffer.data(), count, dtype, seed);
            gpu.synchronise();
            return buffer.download_all<std::uint16_t>();
        };
        const std::vector<std::uint16_t> bits = draw(5);
        CHECK(draw(5) == bits);
        CHECK(draw(6) != bits);

        std::array<double, 5> moments{};
        double neighbours = 0;
        double previous = 0;
        for (const float value : backlight::widen<float>(dtype, bits)) {
            double power = 1;
            for (double& moment : moments) {
                moment += power / static_cast<double>(count);
                power *= static_cast<double>(value);
            }
            neighbours += previous * static_cast<double>(value) / static_cast<double>(count);
            previous = static_cast<double>(value);
        }
        // Five standard deviations of each mean over 2^20 draws, 2^-10 of one: of x, x², x³, x⁴ the
        // deviations are 1, √2, √15 and √96.
        constexpr double five_deviations = 5.0 / 1024;
        CHECK(std::abs(moments[1]) < five_deviations);
        CHECK(std::abs(moments[2] - 1) < 1.5 * five_deviations);
        CHECK(std::abs(moments[3]) < 3.9 * five_deviations);
        CHECK(std::abs(moments[4] - 3) < 9.8 * five_deviations);
        CHECK(std::abs(neighbours) < five_deviations);
    }
}

TEST_CASE("conversion to fp32 and back keeps every bit, through strides") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
        const AttentionProblem problem = square_problem(2, 3, 50, 64, false, dtype).problem;
        tool::ProblemData data(kernels, problem, tool::Layout::bshd);
        data.randomise(9);
        const std::vector<std::byte> before = data.download(Operand::q);
        const std::size_t count = before.size() / sizeof(std::uint16_t);
        const tool::DeviceBuffer floats(gpu, count * sizeof(float));
        const attention::Extents extents = attention::query_extents(problem);
        kernels.to_float(data.view(Operand::q), floats.as<float>(), extents, dtype);
        kernels.from_float(floats.as<float>(), data.view(Operand::d_q), extents, dtype);
        CHECK(data.download(Operand::d_q) == before);
    }
}

TEST_CASE("words that differ are counted on the device") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    require_differences_counted(kernels);
}

}  // namespace

}  // namespace backlight::test
