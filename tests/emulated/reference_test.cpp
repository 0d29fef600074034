// The fp32 reference kernels, which referee large problems, against fp64 on the host.
#include "reference_comparison.hpp"

#include "emulated_test_support.hpp"
#include "gradient_values.hpp"

namespace backlight::test {

namespace {

TEST_CASE("the fp32 reference kernels match fp64 with every feature of a problem") {
    EmulatedSession session;
    for (const AttentionProblem& problem : general_problems()) {
        compare_with_host(session.kernels(), problem);
    }
}

TEST_CASE("a problem without scores leaves gradients as they are that are to be added to") {
    EmulatedSession session;
    const AttentionProblem problem{.heads = 4,
                                   .heads_kv = 2,
                                   .seqlen_q = 70,
                                   .seqlen_kv = 0,
                                   .head_dim = 64,
                                   .gradient_type = GradientType::fp32,
                                   .accumulate_gradients = true};
    tool::ProblemData data(session.kernels(), problem);
    const std::vector<float> held = verification::normal_numbers(std::size_t{4} * 70 * 64, 1);
    data.set_gradients({held, {}, {}});
    session.runtime().backward(problem)->run(data.tensors(), nullptr, 0,
                                             session.session().stream());
    CHECK(gradient_values(problem, data.download(tool::ProblemData::Operand::d_q)) == held);
}

TEST_CASE("a problem without scores gets zeros from its plan in every layout and type") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] :
         {std::pair{0, 70}, std::pair{70, 0}, std::pair{0, 0}}) {
        for (const GradientType type : {GradientType::input, GradientType::fp32}) {
            for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::bshd}) {
                const AttentionProblem problem{.batch = 2,
                                               .heads = 4,
                                               .heads_kv = 2,
                                               .seqlen_q = seqlen_q,
                                               .seqlen_kv = seqlen_kv,
                                               .head_dim = 96,
                                               .head_dim_v = 40,
                                               .causal = true,
                                               .gradient_type = type,
                                               .deterministic = true};
                CAPTURE(to_string(problem));
                tool::ProblemData data(session.kernels(), problem, layout);
                const auto plan = session.runtime().backward(problem);
                CHECK(plan->workspace_bytes() == 0);
                CHECK(plan->resources().empty());
                data.poison();
                plan->run(data.tensors(), nullptr, 0, session.session().stream());
                const auto gradients = data.gradients();
                const std::size_t words = type == GradientType::fp32 ? 2 : 1;
                const auto zeros = [&](int rows, std::size_t columns) {
                    return std::vector<std::uint16_t>(static_cast<std::size_t>(rows) * columns *
                                                      words);
                };
                CHECK(gradients.d_q == zeros(2 * 4 * seqlen_q, 96));
                CHECK(gradients.d_k == zeros(2 * 2 * seqlen_kv, 96));
                CHECK(gradients.d_v == zeros(2 * 2 * seqlen_kv, 40));
                CHECK_FALSE(data.damaged_canary().has_value());
            }
        }
    }
}

}  // namespace

}  // namespace backlight::test
