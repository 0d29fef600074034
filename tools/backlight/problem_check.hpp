#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backlight/problem.hpp"
#include "backlight/tile_config.hpp"
#include "problem_data.hpp"
#include "support_kernels.hpp"
#include "verification/accuracy.hpp"
#include "verification/inputs.hpp"
#include "verification/packing.hpp"

namespace backlight::tool {

/// What a kernel is compared with.
enum class Reference {
    /// Double precision on the host: for small problems.
    host_fp64,
    /// The plain fp32 kernels on the same device: for large ones.
    device_fp32,
};

const char* to_string(Reference reference) noexcept;

/// A problem with inputs and what is demanded of a kernel on it.
struct CheckedProblem {
    AttentionProblem problem;
    verification::InputKind inputs = verification::InputKind::normal;
    Layout layout = Layout::bhsd;
    Reference reference = Reference::host_fp64;
    /// Runs; dK and dV must be the same bits each time.
    int repeats = 3;
    std::uint64_t seed = 1;
    /// Of packed problems; see ProblemData.
    verification::Packing packing = {};
};

/// The gradients in the order in which all of this numbers them.
inline constexpr std::array gradient_names = {"dQ", "dK", "dV"};

verification::TensorShape gradient_shape(const AttentionProblem& problem, std::size_t gradient);

/// The largest errors that are accepted of one gradient.
struct Tolerance {
    double relative_l2 = 0;
    double worst_row = 0;
    /// See AccuracyOptions: not 0 where the gradient vanishes mathematically.
    double minimum_rms = 0;
    /// Relative L2 between two runs of the same kernel: 0 demands equal bits.
    double between_runs = 0;
};

struct TensorReport {
    std::string tensor;
    verification::Accuracy accuracy;
    Tolerance tolerance;
    /// Largest relative L2 between the first run and a later one.
    double between_runs = 0;
};

struct ProblemReport {
    CheckedProblem problem;
    std::string kernel;
    /// dQ, dK, dV.
    std::vector<TensorReport> tensors;
    /// What was not as it must be, for a person to read.
    std::vector<std::string> failures;

    bool passed() const noexcept { return failures.empty(); }
    /// Whether the kernel did not come to its end: there are no gradients to judge.
    bool faulted() const noexcept { return tensors.empty(); }
};

/// Tolerances of dQ, dK and dV.
///
/// - N(0, 1) inputs: relative L2 of 5e-3 in bf16 and 1e-3 in fp16, about twice what rounding P, dS
///   and the results to the type costs; 3e-3 in bf16 from 512 queries on. A row may be four times
///   as far off.
/// - Other inputs: twice that, since they make terms cancel that were rounded before (the keys of
///   low_lse have a common part that dQ must lose); a row ten times further.
/// - dQ of fewer than 64 columns: a row's errors average less, and the common part of the keys of
///   low_lse and high_lse is larger, for the same logits. A row, and of inputs other than N(0, 1)
///   the tensor, may be √(64 / head_dim) times as far off.
/// - A tensor of few rows averages over few: of inputs other than N(0, 1), one of n rows in all may
///   be √(1 + 4 / n) times as far off, a few per cent where there are a hundred.
/// - dQ and dK vanish where O equals the one V that counts (equal_rows, dominant_key, a single key,
///   logits far apart), and only fp32's own rounding remains of the terms that cancel, of about
///   softmax_scale · √head_dim · |Q|, at least 1: 25 for large_logits, 5.3 for low_lse and high_lse
///   at head_dim 64. 1e-5 of these, and ten times that for a row, is accepted of any tensor; 3e-6,
///   and four times that, of N(0, 1) inputs. Those are below what is accepted anyway unless a
///   tensor vanishes.
/// - Gradients that are added to start with N(0, 1), and the sums have fp32's rounding: that of two
///   is accepted of any tensor, since it is as large beside small gradients.
/// - dQ is summed by atomics: two runs may differ by a quarter of the tolerance. dK and dV may not,
///   nor may dQ where the problem is to be deterministic.
std::array<Tolerance, 3> tolerances(const CheckedProblem& problem);

/// Of dQ (0), dK (1) or dV (2): whether the mask leaves no score in which the query, or the key,
/// takes part. What a kernel writes there must be 0.
std::vector<bool> rows_without_gradient(const AttentionProblem& problem, std::size_t gradient);
/// The same of packed sequences, and rows that are none of theirs, for which zeros stand.
std::vector<bool> rows_without_gradient(const AttentionProblem& problem,
                                        const verification::Packing& packing, std::size_t gradient);

/// A problem on a device with its reference, made once and used for any number of kernels.
class ProblemCheck {
  public:
    ProblemCheck(SupportKernels& kernels, const CheckedProblem& problem);

    ProblemReport check(const std::string& kernel, const TileConfig& config);
    /// The same with a plan that was made already.
    ProblemReport check(const std::string& kernel, const BackwardPlan& plan);

    ProblemData& data() noexcept { return *data_; }

  private:
    void make_held();
    void make_host_reference();
    /// Before a run: NaN in the outputs and at first in the workspace, or what is added to.
    void prepare_outputs(int run);
    /// What the kernel computed: of gradients that are added to, less what they held before.
    std::vector<float> values_of(std::size_t tensor, const std::vector<std::uint16_t>& bits) const;
    verification::Accuracy accuracy(std::size_t tensor, const std::vector<float>& values,
                                    const Tolerance& tolerance) const;
    void check_zeros(std::size_t tensor, const std::vector<float>& values,
                     ProblemReport& report) const;
    void check_runs(const BackwardPlan& plan, ProblemReport& report);

    SupportKernels& kernels_;
    CheckedProblem problem_;
    std::unique_ptr<ProblemData> data_;
    /// What dQ, dK and dV hold before a run; empty where they are not added to.
    std::array<std::vector<float>, 3> held_;
    std::array<std::vector<float>, 3> fp32_reference_;
    std::array<std::vector<double>, 3> fp64_reference_;
};

/// One kernel on one problem.
ProblemReport check_problem(SupportKernels& kernels, const CheckedProblem& problem,
                            const std::string& kernel, const TileConfig& config);

/// "batch=1 heads=2 … inputs=normal layout=bshd".
std::string to_string(const CheckedProblem& problem);

}  // namespace backlight::tool
