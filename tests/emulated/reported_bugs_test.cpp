// What public reports say that backwards of others got wrong, as small problems: each preset must
// be right, or refuse by the name of the field. Those that a kernel refuses today are tests of it
// from the day on which it does not.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "arguments.hpp"
#include "attention/fitted_config.hpp"
#include "backlight/error.hpp"
#include "emulated_test_support.hpp"
#include "far_tensors.hpp"
#include "half_types.hpp"
#include "tuning/search_space.hpp"
#include "verification/accuracy.hpp"

namespace backlight::test {

namespace {

using tool::Layout;
using verification::InputKind;

/// Every preset is right; or it refuses with a field's name and value ("… is …: it must …") before
/// anything runs.
void require_right_or_refused(EmulatedSession& session, const tool::CheckedProblem& problem) {
    tool::ProblemCheck check(session.kernels(), problem);
    for (const KernelPreset& preset : kernel_presets()) {
        const std::string name(preset.name);
        CAPTURE(name);
        const device::Target target = session.device().properties().target;
        // What the runtime makes of a preset for heads that are wide.
        const TileConfig config = attention::fitted_config(preset.config, problem.problem, target);
        if (tuning::is_legal(config, problem.problem, target)) {
            require_passed(check.check(name, config));
            continue;
        }
        try {
            session.runtime().backward(problem.problem, config);
            FAIL_CHECK("it is neither legal nor refused");
        } catch (const Error& error) {
            const std::string text = error.what();
            CAPTURE(text);
            // Of wide heads a preset's converts_d_q is what is refused.
            const bool of_preset =
                error.code() == ErrorCode::invalid_argument && text.starts_with("converts_d_q is ");
            CHECK((error.code() == ErrorCode::unsupported ||
                   error.code() == ErrorCode::shared_memory_exceeded || of_preset));
            CHECK(text.find(" is ") != std::string::npos);
            CHECK(text.find("must be ") != std::string::npos);
        }
    }
}

tool::CheckedProblem checked(const AttentionProblem& problem, InputKind inputs = InputKind::normal,
                             Layout layout = Layout::bhsd) {
    return {.problem = problem, .inputs = inputs, .layout = layout, .repeats = 1};
}

// pytorch 196678, huggingface/trl 7181, cudnn-frontend 628
TEST_CASE("reported: 64 keys in the last tile and an LSE below -88 leave dQ finite and right") {
    EmulatedSession session;
    for (const std::int64_t seqlen_kv : {64, 192}) {
        for (const InputKind inputs : {InputKind::low_lse, InputKind::high_lse}) {
            require_right_or_refused(
                session,
                checked({.heads = 2, .seqlen_q = 64, .seqlen_kv = seqlen_kv, .head_dim = 128},
                        inputs));
        }
    }
}

// flash-attention 334
TEST_CASE("reported: a single query and key have a dQ and a dK of nothing and no NaN") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {16, 64}) {
        for (const InputKind inputs : {InputKind::normal, InputKind::large_logits}) {
            require_right_or_refused(
                session, checked({.seqlen_q = 1, .seqlen_kv = 1, .head_dim = head_dim}, inputs));
        }
    }
}

// flash-attention 443, pytorch 41508
TEST_CASE("reported: queries that attend to no key get zeros and spoil no other row") {
    EmulatedSession session;
    for (const std::int64_t seqlen_q : {76, 128}) {
        for (const std::int64_t seqlen_kv : {1, 64}) {
            require_right_or_refused(session, checked({.heads = 2,
                                                       .seqlen_q = seqlen_q,
                                                       .seqlen_kv = seqlen_kv,
                                                       .head_dim = 64,
                                                       .causal = true}));
        }
    }
}

// flash-attention 1052, 1947, ROCm/aiter 3551
TEST_CASE("reported: large logits beside masked ones are finite with the causal mask") {
    EmulatedSession session;
    require_right_or_refused(
        session,
        checked({.heads = 2, .seqlen_q = 256, .seqlen_kv = 256, .head_dim = 128, .causal = true},
                InputKind::large_logits));
}

// pytorch 153799, 136232
TEST_CASE("reported: lengths that no tile divides and a mask larger than them are right") {
    EmulatedSession session;
    for (const std::int64_t seqlen : {65, 100, 129}) {
        require_right_or_refused(session, checked({.seqlen_q = seqlen,
                                                   .seqlen_kv = seqlen,
                                                   .head_dim = 64,
                                                   .causal = true,
                                                   .window_left = 1000},
                                                  InputKind::normal, Layout::padded));
    }
}

// flash-attention PR 2896
TEST_CASE("reported: head dimensions that tiles pad leave no trace of what lies beside them") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {8, 72, 104}) {
        require_right_or_refused(
            session, checked({.heads = 2, .seqlen_q = 128, .seqlen_kv = 128, .head_dim = head_dim},
                             InputKind::normal, Layout::padded));
    }
}

// flash-attention 2552, 2087
TEST_CASE("reported: values of another head dimension than keys have the right dV") {
    EmulatedSession session;
    for (const auto& [head_dim, head_dim_v] :
         {std::pair{128, 96}, std::pair{192, 128}, std::pair{64, 128}}) {
        require_right_or_refused(session, checked({.seqlen_q = 128,
                                                   .seqlen_kv = 128,
                                                   .head_dim = head_dim,
                                                   .head_dim_v = head_dim_v}));
    }
}

// flash-attention 2750
TEST_CASE("reported: a head dimension of 256 has tiles that fit or is refused by its name") {
    EmulatedSession session;
    require_right_or_refused(session,
                             checked({.seqlen_q = 128, .seqlen_kv = 128, .head_dim = 256}));
}

// flash-attention 355
TEST_CASE("reported: an upstream gradient of other strides than the output is read by its own") {
    EmulatedSession session;
    const tool::CheckedProblem problem = square_problem(2, 2, 128, 64, true);
    tool::ProblemCheck check(session.kernels(), problem);
    tool::ProblemData& data = check.data();
    // dO as (batch, seqlen, heads, head_dim); everything else as it was.
    tool::ProblemData other(session.kernels(), problem.problem, Layout::bshd);
    other.set_inputs(verification::make_inputs(problem.problem, problem.inputs, problem.seed));
    for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
        const auto plan = session.runtime().backward(problem.problem, preset.config);
        require_passed(check.check(std::string(preset.name), *plan));
        const tool::Gradients<std::uint16_t> expected = data.gradients();
        BackwardTensors tensors = data.tensors();
        tensors.d_o = other.tensors().d_o;
        data.poison();
        plan->run(tensors, data.workspace(plan->workspace_bytes()), plan->workspace_bytes(),
                  session.session().stream());
        session.session().synchronise();
        CHECK(data.gradients().d_k == expected.d_k);
        CHECK(data.gradients().d_v == expected.d_v);
    }
}

// flash-attention 2611, pytorch 190857; on a GPU the strides pass 2^31
TEST_CASE("reported: rows far apart in memory have the gradients of rows beside each other") {
    EmulatedSession session;
    tool::CheckedProblem problem = square_problem(2, 2, 128, 64, true);
    problem.repeats = 1;
    require_far_rows_alike(session.kernels(), problem,
                           3 * FarTensors::least_stride(problem.problem));
}

// flash-attention 1596, 746, PR 1893; FBGEMM PR 4982
TEST_CASE("reported: deterministic gradients are equal bits with windows and unequal lengths too") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] :
         {std::pair{128, 128}, std::pair{64, 256}, std::pair{256, 128}}) {
        for (const bool window : {false, true}) {
            AttentionProblem problem{.heads = 2,
                                     .seqlen_q = seqlen_q,
                                     .seqlen_kv = seqlen_kv,
                                     .head_dim = 64,
                                     .deterministic = true};
            if (window) {
                problem.window_left = 40;
                problem.window_right = 0;
            }
            tool::CheckedProblem run = checked(problem);
            run.repeats = 3;
            require_right_or_refused(session, run);
        }
    }
}

// Read from others' sources: row sums of partial blocks.
TEST_CASE("reported: rows whose given LSE is infinite add nothing and change no other row") {
    EmulatedSession session;
    for (const std::int64_t head_dim : {64, 128}) {
        const tool::CheckedProblem problem = square_problem(1, 2, 128, head_dim, false);
        tool::ProblemCheck check(session.kernels(), problem);
        tool::ProblemData& data = check.data();
        std::vector<float> lse = data.download_lse();
        constexpr float infinity = std::numeric_limits<float>::infinity();
        lse[3] = infinity;
        lse[64] = -infinity;
        lse[200] = infinity;
        data.upload_lse(lse);
        const tool::Gradients<float> expected = data.reference_gradients();
        for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
            const std::string name(preset.name);
            CAPTURE(name);
            data.poison();
            data.run(*session.runtime().backward(problem.problem, preset.config));
            session.session().synchronise();
            const tool::Gradients<std::uint16_t> bits = data.gradients();
            const auto error = [&](const std::vector<std::uint16_t>& actual,
                                   const std::vector<float>& reference, std::size_t tensor) {
                return verification::measure_accuracy(widen<float>(problem.problem.dtype, actual),
                                                      std::span<const float>(reference),
                                                      tool::gradient_shape(problem.problem, tensor),
                                                      {})
                    .relative_l2;
            };
            CHECK(error(bits.d_q, expected.d_q, 0) < 5e-3);
            CHECK(error(bits.d_k, expected.d_k, 1) < 5e-3);
            CHECK(error(bits.d_v, expected.d_v, 2) < 5e-3);
            for (const std::size_t row : {3, 64, 200}) {
                const auto columns = static_cast<std::size_t>(head_dim);
                CHECK(
                    std::all_of(bits.d_q.begin() + static_cast<std::ptrdiff_t>(row * columns),
                                bits.d_q.begin() + static_cast<std::ptrdiff_t>((row + 1) * columns),
                                [](std::uint16_t value) { return (value & 0x7fff) == 0; }));
            }
        }
    }
}

// flash-attention 2651
TEST_CASE("reported: without a given softmax scale the gradients are those of the usual one") {
    EmulatedSession session;
    tool::CheckedProblem problem = square_problem(1, 2, 128, 64, false);
    problem.repeats = 1;
    for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
        SameBits bits;
        for (const std::optional<float> scale : {std::optional<float>{}, std::optional(0.125F)}) {
            problem.problem.softmax_scale = scale;
            tool::ProblemCheck check(session.kernels(), problem);
            require_passed(check.check(std::string(preset.name), preset.config));
            bits.check(check.data().gradients());
        }
    }
}

}  // namespace

}  // namespace backlight::test
