#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "arguments.hpp"
#include "problem_check.hpp"
#include "session/session.hpp"
#include "support_kernels.hpp"

namespace backlight::tool {

/// How a gradient of the GPU differs from the emulated device's.
struct GradientDifference {
    std::string tensor;
    double relative_l2 = 0;
    double allowed = 0;
    /// Of the elements, those with the same bits.
    double equal_share = 0;
};

/// The same kernels on the emulated device, on the same problems, to compare a GPU with.
class EmulatedTwin {
  public:
    EmulatedTwin();

    Session& session() noexcept { return *session_; }

    void set_problem(const CheckedProblem& problem);

    /// How dK and dV differ, where `gpu` are the gradients of the kernel on the GPU; dQ is summed
    /// in no fixed order. What is more than allowed becomes a failure of the report.
    std::vector<GradientDifference> compare(ProblemReport& report, const NamedConfig& kernel,
                                            const Gradients<std::uint16_t>& gpu);

    /// The largest relative L2 of all comparisons.
    double largest() const noexcept { return largest_; }

  private:
    GradientDifference compare(std::size_t tensor, const std::vector<std::uint16_t>& gpu,
                               const std::vector<std::uint16_t>& emulated, ProblemReport& report);

    std::unique_ptr<Session> session_;
    SupportKernels support_;
    std::unique_ptr<ProblemCheck> check_;
    double largest_ = 0;
};

}  // namespace backlight::tool
