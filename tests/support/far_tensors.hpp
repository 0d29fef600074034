// Tensors whose rows lie far apart, all within one piece of memory: what needs 64-bit offsets needs
// no more memory than one such tensor then.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "checked_problems.hpp"
#include "half_types.hpp"
#include "problem_data.hpp"

namespace backlight::test {

/// The tensors of a problem with as many heads and head dimensions of keys and values as of
/// queries, row by row beside each other: row r of (batch b, head h) begins at element `stride · (b
/// · seqlen + r)`, and of that h-th head of the operand.
class FarTensors {
  public:
    /// Throws what the device says where there is not so much memory.
    FarTensors(tool::Session& session, const AttentionProblem& problem, std::int64_t stride)
        : session_(session),
          problem_(problem),
          stride_(stride),
          buffer_(session, static_cast<std::size_t>(problem.batch * problem.seqlen_q * stride) *
                               sizeof(std::uint16_t)) {}

    /// Into which all operands fit.
    static std::int64_t least_stride(const AttentionProblem& problem) {
        return operands * problem.heads * problem.head_dim;
    }

    BackwardTensors tensors(const BackwardTensors& contiguous) const {
        BackwardTensors far = contiguous;
        far.q = view(0);
        far.k = view(1);
        far.v = view(2);
        far.o = view(3);
        far.d_o = view(4);
        far.d_q = view(5);
        far.d_k = view(6);
        far.d_v = view(7);
        return far;
    }

    /// The operand's elements, (batch, heads, seqlen, head_dim).
    void set(int operand, std::span<const std::byte> bytes) {
        session_.synchronise();
        std::size_t at = 0;
        for_each_row(operand, [&](std::size_t offset, std::size_t size) {
            buffer_.upload(bytes.subspan(at, size), offset);
            at += size;
        });
    }
    std::vector<std::uint16_t> get(int operand) const {
        session_.synchronise();
        std::vector<std::uint16_t> bits(static_cast<std::size_t>(
            problem_.batch * problem_.heads * problem_.seqlen_q * problem_.head_dim));
        const std::span<std::byte> bytes = std::as_writable_bytes(std::span(bits));
        std::size_t at = 0;
        for_each_row(operand, [&](std::size_t offset, std::size_t size) {
            buffer_.download(bytes.subspan(at, size), offset);
            at += size;
        });
        return bits;
    }

  private:
    static constexpr std::int64_t operands = 8;

    std::int64_t first(int operand) const { return operand * problem_.heads * problem_.head_dim; }

    TensorView view(int operand) const {
        return {.data = buffer_.as<std::uint16_t>() + first(operand),
                .stride_batch = problem_.seqlen_q * stride_,
                .stride_head = problem_.head_dim,
                .stride_seqlen = stride_};
    }

    template <typename Visit>
    void for_each_row(int operand, const Visit& visit) const {
        for (std::int64_t batch = 0; batch < problem_.batch; ++batch) {
            for (std::int64_t head = 0; head < problem_.heads; ++head) {
                for (std::int64_t row = 0; row < problem_.seqlen_q; ++row) {
                    const std::int64_t element = (batch * problem_.seqlen_q + row) * stride_ +
                                                 first(operand) + head * problem_.head_dim;
                    visit(static_cast<std::size_t>(element) * sizeof(std::uint16_t),
                          static_cast<std::size_t>(problem_.head_dim) * sizeof(std::uint16_t));
                }
            }
        }
    }

    tool::Session& session_;
    AttentionProblem problem_;
    std::int64_t stride_;
    tool::DeviceBuffer buffer_;
};

/// Every preset that takes the square problem gives the same bits of dK and dV, and of dQ what any
/// two runs may differ by, with rows `stride` elements apart as without gaps.
inline void require_far_rows_alike(tool::SupportKernels& kernels,
                                   const tool::CheckedProblem& problem, std::int64_t stride) {
    using Operand = tool::ProblemData::Operand;
    tool::Session& session = kernels.session();
    tool::ProblemCheck check(kernels, problem);
    tool::ProblemData& data = check.data();
    FarTensors far(session, problem.problem, stride);
    const std::array inputs = {Operand::q, Operand::k, Operand::v, Operand::o, Operand::d_o};
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        far.set(static_cast<int>(i), data.download(inputs[i]));
    }
    for (const KernelPreset& preset : presets_for(kernels, problem.problem)) {
        const std::string name(preset.name);
        CAPTURE(name);
        const auto plan = session.runtime().backward(problem.problem, preset.config);
        require_passed(check.check(name, *plan));
        const tool::Gradients<std::uint16_t> near = data.gradients();
        plan->run(far.tensors(data.tensors()), data.workspace(plan->workspace_bytes()),
                  plan->workspace_bytes(), session.stream());
        session.synchronise();
        CHECK(far.get(6) == near.d_k);
        CHECK(far.get(7) == near.d_v);
        const auto values = [&](const std::vector<std::uint16_t>& bits) {
            return widen<float>(problem.problem.dtype, bits);
        };
        const std::vector<float> d_q = values(near.d_q);
        CHECK(verification::measure_accuracy(values(far.get(5)), std::span<const float>(d_q),
                                             tool::gradient_shape(problem.problem, 0), {})
                  .relative_l2 <= tool::tolerances(problem)[0].between_runs);
    }
}

}  // namespace backlight::test
