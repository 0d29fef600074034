// The small grid of `verify --grid`, each kernel on the share that it takes, in parts that ctest
// can run at the same time.
#include <algorithm>
#include <vector>

#include "arguments.hpp"
#include "emulated_test_support.hpp"
#include "grid_share.hpp"

namespace backlight::test {

namespace {

/// Every `parts`-th problem of the kernel's share, from the `part`-th on.
void check_grid(const char* kernel, std::size_t part, std::size_t parts) {
    EmulatedSession session;
    const tool::NamedConfig named = tool::parse_kernel(kernel);
    const tool::GridShare share = tool::grid_share(tool::VerificationGrid(tool::GridSize::small),
                                                   named, session.device().properties().target);
    REQUIRE(share.problems.size() > parts);
    for (std::size_t i = part; i < share.problems.size(); i += parts) {
        tool::CheckedProblem problem = share.problems[i];
        problem.repeats = problem.problem.deterministic ? 2 : 1;
        require_passed(tool::check_problem(session.kernels(), problem, kernel, named.config));
    }
}

TEST_CASE("grid: the first half of what the seed's kernel takes matches fp64") {
    check_grid("v3", 0, 2);
}
TEST_CASE("grid: the second half of what the seed's kernel takes matches fp64") {
    check_grid("v3", 1, 2);
}

TEST_CASE("grid: the first quarter of what mma_resident takes matches fp64") {
    check_grid("v4", 0, 4);
}
TEST_CASE("grid: the second quarter of what mma_resident takes matches fp64") {
    check_grid("v4", 1, 4);
}
TEST_CASE("grid: the third quarter of what mma_resident takes matches fp64") {
    check_grid("v4", 2, 4);
}
TEST_CASE("grid: the fourth quarter of what mma_resident takes matches fp64") {
    check_grid("v4", 3, 4);
}

TEST_CASE("grid: the first quarter of what wgmma takes matches fp64") {
    check_grid("wgmma", 0, 4);
}
TEST_CASE("grid: the second quarter of what wgmma takes matches fp64") {
    check_grid("wgmma", 1, 4);
}
TEST_CASE("grid: the third quarter of what wgmma takes matches fp64") {
    check_grid("wgmma", 2, 4);
}
TEST_CASE("grid: the fourth quarter of what wgmma takes matches fp64") {
    check_grid("wgmma", 3, 4);
}

TEST_CASE("what a kernel reads and writes beyond the sequences is NaN and is found as damage") {
    EmulatedSession session;
    tool::ProblemData data(session.kernels(), square_problem(1, 4, 64, 64, false).problem,
                           tool::Layout::padded);
    data.randomise(1);
    CHECK_FALSE(data.damaged_canary().has_value());
    // Of a head that is twice as long: it goes on into the gaps, and the next head.
    const AttentionProblem longer = square_problem(1, 1, 128, 64, false).problem;
    const auto plan = session.runtime().backward(longer, kernel_preset("v3"));
    data.run(*plan);
    session.session().synchronise();
    const auto is_nan = [](std::uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
    CHECK(std::ranges::any_of(data.gradients().d_q, is_nan));
    CHECK(std::ranges::any_of(data.gradients().d_k, is_nan));

    // From inputs that are so long, so that what it writes are numbers.
    tool::ProblemData inputs(session.kernels(), longer);
    inputs.randomise(1);
    for (const auto output :
         {&BackwardTensors::d_q, &BackwardTensors::d_k, &BackwardTensors::d_v}) {
        data.poison();
        CHECK_FALSE(data.damaged_canary().has_value());
        BackwardTensors tensors = inputs.tensors();
        tensors.*output = data.tensors().*output;
        plan->run(tensors, data.workspace(plan->workspace_bytes()), plan->workspace_bytes(),
                  session.session().stream());
        session.session().synchronise();
        CHECK(data.damaged_canary().has_value());
    }
}

TEST_CASE("in the padded layout every preset has the bits of the layout without gaps") {
    EmulatedSession session;
    for (const bool causal : {false, true}) {
        tool::CheckedProblem problem = square_problem(2, 2, 128, 64, causal);
        problem.repeats = 1;
        for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
            SameBits bits;
            for (const tool::Layout layout : {tool::Layout::bhsd, tool::Layout::padded}) {
                problem.layout = layout;
                tool::ProblemCheck check(session.kernels(), problem);
                require_passed(check.check(std::string(preset.name), preset.config));
                bits.check(check.data().gradients());
            }
        }
    }
}

}  // namespace

}  // namespace backlight::test
