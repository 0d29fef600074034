#include "problem_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "attention/extents.hpp"
#include "backlight/error.hpp"
#include "gradient_values.hpp"
#include "half_types.hpp"
#include "verification/host_reference.hpp"

namespace backlight::tool {

namespace {

using verification::InputKind;

std::array<std::vector<std::uint16_t>, 3> in_order(Gradients<std::uint16_t> gradients) {
    return {std::move(gradients.d_q), std::move(gradients.d_k), std::move(gradients.d_v)};
}

}  // namespace

verification::TensorShape gradient_shape(const AttentionProblem& problem, std::size_t gradient) {
    const attention::Extents extents = gradient == 0   ? attention::query_extents(problem)
                                       : gradient == 1 ? attention::key_extents(problem)
                                                       : attention::value_extents(problem);
    return {.batch = extents.batch,
            .heads = extents.heads,
            .rows = extents.seqlen,
            .columns = extents.head_dim};
}

const char* to_string(Reference reference) noexcept {
    return reference == Reference::host_fp64 ? "host fp64" : "device fp32";
}

std::string to_string(const CheckedProblem& problem) {
    return fmt::format("{} inputs={} layout={}{}", to_string(problem.problem),
                       verification::to_string(problem.inputs), to_string(problem.layout),
                       !problem.packing.is_empty()
                           ? fmt::format(" cu_seqlens_q={} cu_seqlens_kv={}",
                                         fmt::join(problem.packing.cu_seqlens_q, ","),
                                         fmt::join(problem.packing.cu_seqlens_kv, ","))
                           : std::string());
}

std::array<Tolerance, 3> tolerances(const CheckedProblem& checked) {
    const AttentionProblem& problem = checked.problem;
    const bool bf16 = problem.dtype == DataType::bf16;
    constexpr std::int64_t long_sequence = 512;

    Tolerance tolerance;
    tolerance.relative_l2 = bf16 ? 5e-3 : 1e-3;
    if (checked.inputs == InputKind::normal) {
        // Packed sequences may be as short as any.
        if (bf16 && !problem.packed && problem.seqlen_q >= long_sequence) {
            tolerance.relative_l2 = 3e-3;
        }
        tolerance.worst_row = 4 * tolerance.relative_l2;
    } else {
        tolerance.relative_l2 *= 2;
        tolerance.worst_row = 10 * tolerance.relative_l2;
    }
    Tolerance cancelling = tolerance;
    const bool normal = checked.inputs == InputKind::normal;
    const double terms =
        std::max(1.0, std::abs(static_cast<double>(problem.effective_softmax_scale())) *
                          std::sqrt(static_cast<double>(problem.head_dim)) *
                          verification::query_amplitude(problem, checked.inputs));
    const double rounding = normal ? 3e-6 : 1e-5;
    cancelling.minimum_rms = rounding * terms / tolerance.relative_l2;
    std::array<Tolerance, 3> all = {cancelling, cancelling, tolerance};
    if (problem.accumulate_gradients) {
        // Of numbers up to 4, and twice: by the kernel, and where the start is taken off again.
        constexpr double rounding_of_sums = 0x1p-22;
        for (Tolerance& each : all) {
            each.minimum_rms = std::max(each.minimum_rms, 2 * rounding_of_sums / each.relative_l2);
        }
    }
    if (problem.gradient_type == GradientType::input) {
        // Below its normal numbers a type has steps of one size, to which gradients are rounded.
        const double step = bf16 ? 0x1p-133 : 0x1p-24;
        for (Tolerance& each : all) {
            each.minimum_rms = std::max(each.minimum_rms, step / each.relative_l2);
        }
    }
    const double narrow = std::sqrt(std::max(1.0, 64.0 / static_cast<double>(problem.head_dim)));
    all[0].worst_row *= narrow;
    if (!normal) {
        all[0].relative_l2 *= narrow;
    }
    if (!normal) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            const verification::TensorShape shape = gradient_shape(problem, i);
            const auto rows = static_cast<double>(shape.batch * shape.heads * shape.rows);
            all[i].relative_l2 *= std::sqrt(1 + 4 / std::max(rows, 1.0));
        }
    }
    all[0].between_runs = problem.deterministic ? 0 : all[0].relative_l2 / 4;
    return all;
}

std::vector<bool> rows_without_gradient(const AttentionProblem& problem, std::size_t gradient) {
    // Not by the library's own MaskBand: a check shall not share its mistakes.
    const std::int64_t reach = problem.seqlen_q + problem.seqlen_kv;
    const std::int64_t own = problem.mask_alignment == MaskAlignment::bottom_right
                                 ? problem.seqlen_kv - problem.seqlen_q
                                 : 0;
    const std::int64_t left = std::min(problem.window_left.value_or(reach), reach);
    const std::int64_t right =
        problem.causal ? 0 : std::min(problem.window_right.value_or(reach), reach);
    const bool queries = gradient == 0;
    const std::int64_t others = queries ? problem.seqlen_kv : problem.seqlen_q;
    std::vector<bool> without;
    for (std::int64_t row = 0; row < (queries ? problem.seqlen_q : problem.seqlen_kv); ++row) {
        const std::int64_t first = queries ? row + own - left : row - own - right;
        const std::int64_t last = queries ? row + own + right : row - own + left;
        without.push_back(last < 0 || first >= others || others == 0);
    }
    return without;
}

std::vector<bool> rows_without_gradient(const AttentionProblem& problem,
                                        const verification::Packing& packing,
                                        std::size_t gradient) {
    const bool queries = gradient == 0;
    std::vector<bool> without = verification::used_rows(problem, packing, queries);
    without.flip();
    for (const verification::PackedSequence& sequence : packing.sequences()) {
        const std::vector<bool> own =
            rows_without_gradient(problem.of_sequence(sequence.shape), gradient);
        std::copy(own.begin(), own.end(),
                  without.begin() + (queries ? sequence.q_begin : sequence.kv_begin));
    }
    return without;
}

ProblemCheck::ProblemCheck(SupportKernels& kernels, const CheckedProblem& problem)
    : kernels_(kernels),
      problem_(problem),
      data_(std::make_unique<ProblemData>(kernels, problem.problem, problem.layout,
                                          problem.packing)) {
    if (problem.problem.accumulate_gradients) {
        make_held();
    }
    if (problem_.reference == Reference::host_fp64) {
        make_host_reference();
        return;
    }
    if (problem_.inputs == InputKind::normal) {
        data_->randomise(problem_.seed);
    } else {
        data_->set_inputs(
            verification::make_inputs(problem_.problem, problem_.inputs, problem_.seed));
        data_->compute_forward();
    }
    Gradients<float> gradients = data_->reference_gradients();
    fp32_reference_ = {std::move(gradients.d_q), std::move(gradients.d_k),
                       std::move(gradients.d_v)};
}

void ProblemCheck::make_held() {
    for (std::size_t i = 0; i < held_.size(); ++i) {
        const verification::TensorShape shape = gradient_shape(problem_.problem, i);
        const auto columns = static_cast<std::size_t>(shape.columns);
        held_[i] = verification::normal_numbers(
            static_cast<std::size_t>(shape.batch * shape.heads * shape.rows) * columns,
            problem_.seed * held_.size() + i);
        if (!problem_.problem.packed) {
            continue;
        }
        // Rows of no sequence, whose memory is looked after otherwise, count as zeros.
        const std::vector<bool> used =
            verification::used_rows(problem_.problem, data_->packing(), i == 0);
        for (std::size_t element = 0; element < held_[i].size(); ++element) {
            if (!used[element / columns % used.size()]) {
                held_[i][element] = 0;
            }
        }
    }
}

void ProblemCheck::make_host_reference() {
    const AttentionProblem& problem = problem_.problem;
    data_->set_inputs(verification::make_inputs(problem, problem_.inputs, problem_.seed));
    const verification::InputTensors inputs = data_->inputs();
    const auto widen = [&](const std::vector<std::uint16_t>& bits) {
        return backlight::widen<double>(problem.dtype, bits);
    };
    const std::vector<double> q = widen(inputs.q);
    const std::vector<double> k = widen(inputs.k);
    const std::vector<double> v = widen(inputs.v);
    const std::vector<double> d_o = widen(inputs.d_o);
    const std::vector<verification::PackedSequence> sequences = data_->packing().sequences();
    std::vector<double> exact_o(d_o.size());
    std::vector<double> exact_lse(q.size() / static_cast<std::size_t>(problem.head_dim));
    verification::reference_forward({.problem = problem,
                                     .q = q,
                                     .k = k,
                                     .v = v,
                                     .o = exact_o,
                                     .lse = exact_lse,
                                     .sequences = sequences});

    // The reference gets what the kernel gets: O in the problem's type, LSE in fp32.
    const std::vector<std::uint16_t> o_bits =
        backlight::round_values<double>(problem.dtype, exact_o);
    const std::vector<float> lse_floats(exact_lse.begin(), exact_lse.end());
    const std::vector<double> o = widen(o_bits);
    const std::vector<double> lse(lse_floats.begin(), lse_floats.end());
    fp64_reference_ = {std::vector<double>(q.size()), std::vector<double>(k.size()),
                       std::vector<double>(v.size())};
    verification::reference_backward({.problem = problem,
                                      .q = q,
                                      .k = k,
                                      .v = v,
                                      .o = o,
                                      .lse = lse,
                                      .d_o = d_o,
                                      .d_q = fp64_reference_[0],
                                      .d_k = fp64_reference_[1],
                                      .d_v = fp64_reference_[2],
                                      .sequences = sequences});
    data_->set_forward(o_bits, lse_floats);
}

void ProblemCheck::prepare_outputs(int run) {
    // A user poisons no workspace: further runs get what the one before has left there.
    run == 0 ? data_->poison() : data_->poison_outputs();
    if (problem_.problem.accumulate_gradients) {
        data_->set_gradients(held_);
    }
}

std::vector<float> ProblemCheck::values_of(std::size_t tensor,
                                           const std::vector<std::uint16_t>& bits) const {
    std::vector<float> values = gradient_values(problem_.problem, std::as_bytes(std::span(bits)));
    for (std::size_t i = 0; i < held_[tensor].size(); ++i) {
        values[i] -= held_[tensor][i];
    }
    return values;
}

verification::Accuracy ProblemCheck::accuracy(std::size_t tensor, const std::vector<float>& values,
                                              const Tolerance& tolerance) const {
    const verification::TensorShape shape = gradient_shape(problem_.problem, tensor);
    const verification::AccuracyOptions options{.minimum_rms = tolerance.minimum_rms};
    if (problem_.reference == Reference::host_fp64) {
        return verification::measure_accuracy(
            values, std::span<const double>(fp64_reference_[tensor]), shape, options);
    }
    return verification::measure_accuracy(values, std::span<const float>(fp32_reference_[tensor]),
                                          shape, options);
}

void ProblemCheck::check_zeros(std::size_t tensor, const std::vector<float>& values,
                               ProblemReport& report) const {
    const verification::TensorShape shape = gradient_shape(problem_.problem, tensor);
    const std::vector<bool> zero =
        problem_.problem.packed ? rows_without_gradient(problem_.problem, data_->packing(), tensor)
                                : rows_without_gradient(problem_.problem, tensor);
    const auto columns = static_cast<std::size_t>(shape.columns);
    for (std::size_t row = 0; row < values.size() / columns; ++row) {
        const auto in_row = std::span(values).subspan(row * columns, columns);
        if (zero[row % zero.size()] &&
            !std::ranges::all_of(in_row, [](float value) { return value == 0; })) {
            report.failures.push_back(
                fmt::format("{}: row {} of (batch, head) {} is part of no score that the mask "
                            "leaves, and not 0",
                            gradient_names[tensor], row % zero.size(), row / zero.size()));
            return;
        }
    }
}

void ProblemCheck::check_runs(const BackwardPlan& plan, ProblemReport& report) {
    const std::array<Tolerance, 3> allowed = tolerances(problem_);
    std::array<std::vector<std::uint16_t>, 3> first;
    std::array<std::vector<float>, 3> first_values;
    for (int run = 0; run < std::max(1, problem_.repeats); ++run) {
        prepare_outputs(run);
        data_->run(plan);
        kernels_.session().synchronise();
        const auto bits = in_order(data_->gradients());
        for (std::size_t i = 0; i < bits.size(); ++i) {
            const Tolerance& tolerance = allowed[i];
            if (run == 0) {
                const std::vector<float> values = values_of(i, bits[i]);
                const verification::Accuracy measured = accuracy(i, values, tolerance);
                // A comparison that a NaN fails.
                if (!(measured.relative_l2 <= tolerance.relative_l2) ||
                    !(measured.worst_row <= tolerance.worst_row)) {
                    report.failures.push_back(
                        fmt::format("{}: {}; allowed are {:.1e} and {:.1e}", gradient_names[i],
                                    verification::to_string(measured), tolerance.relative_l2,
                                    tolerance.worst_row));
                }
                check_zeros(i, values, report);
                report.tensors.push_back(
                    {.tensor = gradient_names[i], .accuracy = measured, .tolerance = tolerance});
                continue;
            }
            if (bits[i] == first[i]) {
                continue;
            }
            if (first_values[i].empty()) {
                first_values[i] = values_of(i, first[i]);
            }
            const double difference =
                verification::measure_accuracy(
                    values_of(i, bits[i]), std::span<const float>(first_values[i]),
                    gradient_shape(problem_.problem, i), {.minimum_rms = tolerance.minimum_rms})
                    .relative_l2;
            double& largest = report.tensors[i].between_runs;
            largest = std::max(largest, difference);
            // Bits that differ fail where bits are demanded, even if the values are equal (-0).
            if (tolerance.between_runs == 0 || !(difference <= tolerance.between_runs)) {
                report.failures.push_back(
                    fmt::format("{}: run {} differs from the first by a relative L2 of {:.1e}; "
                                "allowed is {:.1e}",
                                gradient_names[i], run + 1, difference, tolerance.between_runs));
            }
        }
        if (run == 0) {
            first = bits;
        }
    }
    if (const auto damaged = data_->damaged_canary()) {
        report.failures.push_back(fmt::format("memory beside {} was overwritten", *damaged));
    }
}

ProblemReport ProblemCheck::check(const std::string& kernel, const BackwardPlan& plan) {
    ProblemReport report{.problem = problem_, .kernel = kernel, .tensors = {}, .failures = {}};
    check_runs(plan, report);
    return report;
}

ProblemReport ProblemCheck::check(const std::string& kernel, const TileConfig& config) {
    const auto plan = kernels_.session().runtime().backward(problem_.problem, config);
    return check(kernel, *plan);
}

ProblemReport check_problem(SupportKernels& kernels, const CheckedProblem& problem,
                            const std::string& kernel, const TileConfig& config) {
    return ProblemCheck(kernels, problem).check(kernel, config);
}

}  // namespace backlight::tool
