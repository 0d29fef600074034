// The referee and the random inputs themselves, against the host.
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "backlight/error.hpp"
#include "gpu_test_support.hpp"
#include "half_types.hpp"
#include "verification/host_reference.hpp"

namespace backlight::test {

namespace {

using Operand = tool::ProblemData::Operand;

std::vector<std::uint16_t> bits_of(const tool::ProblemData& data, Operand operand) {
    const std::vector<std::byte> bytes = data.download(operand);
    std::vector<std::uint16_t> bits(bytes.size() / sizeof(std::uint16_t));
    std::memcpy(bits.data(), bytes.data(), bytes.size());
    return bits;
}

double relative_l2(const std::vector<float>& actual, const std::vector<double>& expected) {
    return verification::measure_accuracy(actual, std::span<const double>(expected),
                                          {.batch = 1,
                                           .heads = 1,
                                           .rows = 1,
                                           .columns = static_cast<std::int64_t>(actual.size())},
                                          {})
        .relative_l2;
}

void compare_with_host(const AttentionProblem& problem) {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    tool::ProblemData data(kernels, problem);
    data.randomise(11);
    const auto values = [&](Operand operand) {
        return backlight::widen<double>(problem.dtype, bits_of(data, operand));
    };
    const std::vector<double> q = values(Operand::q);
    const std::vector<double> k = values(Operand::k);
    const std::vector<double> v = values(Operand::v);
    const std::vector<double> o = values(Operand::o);
    const std::vector<double> d_o = values(Operand::d_o);
    const std::vector<float> lse = data.download_lse();

    std::vector<double> exact_o(q.size());
    std::vector<double> exact_lse(lse.size());
    verification::reference_forward(
        {.problem = problem, .q = q, .k = k, .v = v, .o = exact_o, .lse = exact_lse});
    CHECK(relative_l2(lse, exact_lse) < 1e-6);
    // O was rounded to the type: each element is within half a unit in the last place.
    CHECK(relative_l2(std::vector<float>(o.begin(), o.end()), exact_o) <
          (problem.dtype == DataType::bf16 ? 3e-3 : 4e-4));

    const std::vector<double> lse_given(lse.begin(), lse.end());
    std::vector<double> d_q(q.size());
    std::vector<double> d_k(k.size());
    std::vector<double> d_v(v.size());
    verification::reference_backward({.problem = problem,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .o = o,
                                      .lse = lse_given,
                                      .d_o = d_o,
                                      .d_q = d_q,
                                      .d_k = d_k,
                                      .d_v = d_v});
    const tool::Gradients<float> gradients = data.reference_gradients();
    CHECK(relative_l2(gradients.d_q, d_q) < 1e-5);
    CHECK(relative_l2(gradients.d_k, d_k) < 1e-5);
    CHECK(relative_l2(gradients.d_v, d_v) < 1e-5);
    CHECK_FALSE(data.damaged_canary().has_value());
}

TEST_CASE("the fp32 reference matches fp64 on the host, at lengths and depths of no whole tile") {
    for (const auto& [seqlen, head_dim] :
         {std::pair{3, 64}, std::pair{31, 128}, std::pair{64, 64}, std::pair{77, 80},
          std::pair{200, 128}, std::pair{45, 33}}) {
        for (const bool causal : {false, true}) {
            CAPTURE(seqlen);
            CAPTURE(head_dim);
            CAPTURE(causal);
            compare_with_host(square_problem(2, 3, seqlen, head_dim, causal).problem);
        }
    }
    AttentionProblem problem = square_problem(2, 2, 40, 64, false, DataType::fp16).problem;
    problem.seqlen_kv = 101;
    problem.softmax_scale = -0.2F;
    compare_with_host(problem);
}

TEST_CASE("the reference refuses a head dimension that its tiles do not hold") {
    tool::Gpu gpu;
    tool::SupportKernels kernels(gpu);
    tool::ProblemData data(kernels, square_problem(1, 1, 32, 192, false).problem);
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
        kernels.to_float(data.view(Operand::q), floats.as<float>(), problem, problem.seqlen_q);
        kernels.from_float(floats.as<float>(), data.view(Operand::d_q), problem, problem.seqlen_q);
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
