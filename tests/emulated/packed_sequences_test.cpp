// Packed sequences on the emulated device against fp64, by the register-resident mma kernel with
// the conversion of dQ in a kernel of its own (v4) and in its own blocks (v5), and by wgmma. What
// no sequence has holds NaN, and must stay as it was.
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "attention/family_support.hpp"
#include "emulated_test_support.hpp"
#include "verification/packing.hpp"

namespace backlight::test {

namespace {

using verification::PackingKind;

constexpr std::array presets = {"v4", "v5", "wgmma"};

bool is_taken(const AttentionProblem& problem, const char* preset) {
    return !attention::unsupported_feature(problem, kernel_preset(preset).family);
}

tool::CheckedProblem packed(const AttentionProblem& problem, PackingKind kind) {
    tool::CheckedProblem checked{.problem = problem, .repeats = 1};
    checked.packing = verification::make_packing(problem, kind);
    checked.problem =
        verification::packed_problem(problem, checked.packing, kind == PackingKind::padded ? 5 : 0);
    return checked;
}

AttentionProblem problem_of(std::int64_t batch, std::int64_t seqlen_q, std::int64_t seqlen_kv,
                            std::int64_t head_dim = 64) {
    return {.batch = batch,
            .heads = 2,
            .seqlen_q = seqlen_q,
            .seqlen_kv = seqlen_kv,
            .head_dim = head_dim};
}

void require_right_by_all(EmulatedSession& session, const tool::CheckedProblem& problem) {
    for (const char* preset : presets) {
        if (is_taken(problem.problem, preset)) {
            CAPTURE(preset);
            require_right(session, problem, kernel_preset(preset));
        }
    }
}

TEST_CASE("packed sequences of any lengths match fp64 with rows between them and without") {
    EmulatedSession session;
    for (const PackingKind kind : verification::packing_kinds) {
        CAPTURE(to_string(kind));
        require_right_by_all(session, packed(problem_of(6, 130, 100), kind));
    }
}

TEST_CASE("packed sequences match fp64 under masks that go by the lengths of each") {
    EmulatedSession session;
    for (const MaskAlignment alignment : {MaskAlignment::top_left, MaskAlignment::bottom_right}) {
        AttentionProblem causal = problem_of(5, 100, 140);
        causal.causal = true;
        causal.mask_alignment = alignment;
        require_right_by_all(session, packed(causal, PackingKind::mixed));
        AttentionProblem window = problem_of(5, 140, 100);
        window.window_left = 30;
        window.window_right = 9;
        window.mask_alignment = alignment;
        require_right_by_all(session, packed(window, PackingKind::padded));
    }
}

TEST_CASE("packed sequences match fp64 with groups of heads and other layouts and fp32 gradients") {
    EmulatedSession session;
    AttentionProblem problem = problem_of(5, 100, 90, 80);
    problem.heads = 4;
    problem.heads_kv = 2;
    problem.head_dim_v = 48;
    problem.causal = true;
    problem.dtype = DataType::fp16;
    problem.gradient_type = GradientType::fp32;
    for (const tool::Layout layout : {tool::Layout::bshd, tool::Layout::padded}) {
        tool::CheckedProblem checked = packed(problem, PackingKind::padded);
        checked.layout = layout;
        require_right_by_all(session, checked);
    }
}

TEST_CASE("gradients of packed sequences are added to what is there and to nothing between them") {
    EmulatedSession session;
    AttentionProblem problem = problem_of(5, 100, 140);
    problem.heads = 4;
    problem.heads_kv = 2;
    problem.causal = true;
    problem.gradient_type = GradientType::fp32;
    problem.accumulate_gradients = true;
    for (const PackingKind kind : {PackingKind::mixed, PackingKind::padded}) {
        require_right_by_all(session, packed(problem, kind));
    }
}

/// Sequences of up to five key tiles, of which none has as many as the next.
tool::CheckedProblem deterministic(bool masked) {
    AttentionProblem problem = problem_of(4, 150, 290);
    problem.gradient_type = GradientType::fp32;
    problem.deterministic = true;
    if (masked) {
        problem.heads = 4;
        problem.heads_kv = 2;
        problem.window_left = 150;
        problem.window_right = 70;
    }
    tool::CheckedProblem checked{.problem = problem, .repeats = 1};
    checked.packing = verification::pack(
        std::vector<SequenceShape>{{150, 290}, {130, 90}, {0, 70}, {50, 0}, {140, 180}});
    checked.problem.batch = 5;
    checked.problem = verification::packed_problem(checked.problem, checked.packing, 0);
    return checked;
}

TEST_CASE("deterministic: packed sequences have the same bits by any number of host threads") {
    for (const bool masked : {false, true}) {
        for (const char* preset : presets) {
            CAPTURE(preset);
            EmulatedSession session;
            require_right(session, deterministic(masked), kernel_preset(preset));
            require_same_bits(
                deterministic(masked), kernel_preset(preset),
                std::array{emulation::GridOrder::ascending, emulation::GridOrder::random},
                std::array{1, 5});
        }
    }
}

TEST_CASE("more packed sequences than a warp has lanes are found") {
    EmulatedSession session;
    AttentionProblem problem = problem_of(70, 40, 40);
    problem.heads = 1;
    require_right_by_all(session, packed(problem, PackingKind::padded));
}

TEST_CASE("one plan serves other packings of the same totals") {
    EmulatedSession session;
    const AttentionProblem problem = problem_of(6, 130, 130);
    const tool::CheckedProblem first = packed(problem, PackingKind::padded);
    tool::CheckedProblem second = first;
    second.packing = verification::make_packing(problem, PackingKind::mixed);
    for (const char* preset : presets) {
        const auto plan = session.runtime().backward(first.problem, kernel_preset(preset));
        for (const tool::CheckedProblem& checked : {first, second}) {
            tool::ProblemCheck check(session.kernels(), checked);
            require_passed(check.check(preset, *plan));
        }
    }
}

TEST_CASE("packed sequences of several key tiles of wgmma match fp64 at both head dimensions") {
    EmulatedSession session;
    AttentionProblem problem = problem_of(5, 150, 300);
    problem.causal = true;
    for (const std::int64_t head_dim : {64, 128}) {
        problem.head_dim = head_dim;
        for (const GradientType type : {GradientType::input, GradientType::fp32}) {
            problem.gradient_type = type;
            require_right(session, packed(problem, PackingKind::padded), kernel_preset("wgmma"));
        }
    }
    problem.heads = 6;
    problem.heads_kv = 2;
    problem.window_left = 100;
    require_right(session, packed(problem, PackingKind::mixed), kernel_preset("wgmma"));
}

TEST_CASE("no schedule changes dK and dV of packed sequences") {
    EmulatedSession session;
    AttentionProblem problem = problem_of(5, 100, 100);
    problem.causal = true;
    for (const char* preset : presets) {
        require_same_bits(session, packed(problem, PackingKind::padded), kernel_preset(preset), 5);
    }
}

void require_harmless_nonsense(const AttentionProblem& problem) {
    EmulatedSession session;
    const tool::CheckedProblem checked = packed(problem, PackingKind::full);
    tool::ProblemData data(session.kernels(), checked.problem, tool::Layout::bhsd, checked.packing);
    data.randomise(1);
    constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
    constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
    const std::vector<std::vector<std::int32_t>> nonsense = {{400, 300, 200, 100, 0},
                                                             {0, most, 0, most, 0},
                                                             {least, most, least, most, 7},
                                                             {-1, -1, -1, -1, -1},
                                                             {0, 0, 0, 0, 401}};
    for (const char* preset : presets) {
        if (!is_taken(checked.problem, preset)) {
            continue;
        }
        const auto plan = session.runtime().backward(checked.problem, kernel_preset(preset));
        for (const std::vector<std::int32_t>& offsets : nonsense) {
            verification::Packing packing{.cu_seqlens_q = offsets,
                                          .cu_seqlens_kv = offsets,
                                          .seqused_q = {most, 3, least, 50},
                                          .seqused_kv = {}};
            data.set_packing(packing);
            data.run(*plan);
            session.session().synchronise();
            std::swap(packing.cu_seqlens_q, packing.seqused_kv);
            packing.cu_seqlens_q = checked.packing.cu_seqlens_q;
            packing.seqused_kv.pop_back();
            data.set_packing(packing);
            data.run(*plan);
            session.session().synchronise();
            // All rows are some sequence's there: what is looked at lies beside the tensors.
            data.set_packing(checked.packing);
            CHECK_FALSE(data.damaged_canary());
        }
    }
}

TEST_CASE("arrays of packed sequences that hold nonsense touch nothing beyond the tensors") {
    AttentionProblem problem = problem_of(4, 100, 100);
    require_harmless_nonsense(problem);
    // Nor does a block wait for what nobody adds.
    problem.deterministic = true;
    require_harmless_nonsense(problem);
}

}  // namespace

}  // namespace backlight::test
