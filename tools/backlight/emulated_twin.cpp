#include "emulated_twin.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "gradient_values.hpp"
#include "session/device_choice.hpp"

namespace backlight::tool {

EmulatedTwin::EmulatedTwin()
    : session_(open_session({.emulation = emulation::EmulationOptions{}})), support_(*session_) {}

void EmulatedTwin::set_problem(const CheckedProblem& problem) {
    check_ = std::make_unique<ProblemCheck>(support_, problem);
}

std::vector<GradientDifference> EmulatedTwin::compare(ProblemReport& report,
                                                      const NamedConfig& kernel,
                                                      const Gradients<std::uint16_t>& gpu) {
    const ProblemReport emulated = check_->check(kernel.name, kernel.config);
    for (const std::string& failure : emulated.failures) {
        report.failures.push_back("emulated: " + failure);
    }
    const Gradients<std::uint16_t> gradients = check_->data().gradients();
    return {compare(1, gpu.d_k, gradients.d_k, report), compare(2, gpu.d_v, gradients.d_v, report)};
}

GradientDifference EmulatedTwin::compare(std::size_t tensor, const std::vector<std::uint16_t>& gpu,
                                         const std::vector<std::uint16_t>& emulated,
                                         ProblemReport& report) {
    const AttentionProblem& problem = report.problem.problem;
    // The types' unit roundoff: 8 and 11 bits of significand.
    const double allowed = problem.dtype == DataType::bf16 ? 0x1p-8 : 0x1p-11;
    const Tolerance tolerance = tolerances(report.problem)[tensor];
    const auto values = [&](const std::vector<std::uint16_t>& bits) {
        return gradient_values(problem, std::as_bytes(std::span(bits)));
    };
    // A gradient that vanishes mathematically is judged as it is against a reference.
    const double relative_l2 =
        verification::measure_accuracy(values(emulated), std::span<const float>(values(gpu)),
                                       gradient_shape(problem, tensor),
                                       {.minimum_rms = tolerance.minimum_rms})
            .relative_l2;
    std::size_t equal = 0;
    for (std::size_t i = 0; i < gpu.size(); ++i) {
        equal += gpu[i] == emulated[i] ? 1 : 0;
    }
    const char* const name = gradient_names[tensor];
    largest_ = std::max(largest_, relative_l2);
    // A comparison that a NaN fails.
    if (!(relative_l2 <= allowed)) {
        report.failures.push_back(fmt::format(
            "{}: the GPU and the emulated device differ by a relative L2 of {:.1e}; allowed is "
            "{:.1e}",
            name, relative_l2, allowed));
    }
    return {.tensor = name,
            .relative_l2 = relative_l2,
            .allowed = allowed,
            .equal_share = static_cast<double>(equal) / static_cast<double>(gpu.size())};
}

}  // namespace backlight::tool
