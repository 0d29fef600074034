// The attention kernels on the emulated device against fp64: what `verify` checks, and the
// configurations that it leaves out.
#include <algorithm>

#include "arguments.hpp"
#include "backlight/error.hpp"
#include "emulated_test_support.hpp"
#include "verify_problems.hpp"

namespace backlight::test {

namespace {

/// Every preset on the problems that it takes of those that `verify` has for an emulated device:
/// one tile to six, all kinds of inputs, unequal lengths, strides, softmax scales. The latter three
/// have nothing to do with the type: bf16 suffices.
void check_verified_problems(std::int64_t head_dim, bool causal, DataType dtype) {
    EmulatedSession session;
    for (const tool::ProblemGroup& group : tool::problem_groups(
             {.head_dim = head_dim, .causal = causal, .dtype = dtype, .emulated = true})) {
        if (dtype == DataType::fp16 && !group.name.starts_with("small ")) {
            continue;
        }
        for (const tool::CheckedProblem& problem : group.problems) {
            tool::ProblemCheck check(session.kernels(), problem);
            for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
                require_passed(check.check(std::string(preset.name), preset.config));
            }
        }
    }
}

TEST_CASE("bf16 with head_dim 64 matches fp64 without a mask") {
    check_verified_problems(64, false, DataType::bf16);
}
TEST_CASE("bf16 with head_dim 64 matches fp64 with a causal mask") {
    check_verified_problems(64, true, DataType::bf16);
}
TEST_CASE("bf16 with head_dim 128 matches fp64 without a mask") {
    check_verified_problems(128, false, DataType::bf16);
}
TEST_CASE("bf16 with head_dim 128 matches fp64 with a causal mask") {
    check_verified_problems(128, true, DataType::bf16);
}
TEST_CASE("fp16 with head_dim 64 matches fp64 without a mask") {
    check_verified_problems(64, false, DataType::fp16);
}
TEST_CASE("fp16 with head_dim 64 matches fp64 with a causal mask") {
    check_verified_problems(64, true, DataType::fp16);
}
TEST_CASE("fp16 with head_dim 128 matches fp64 without a mask") {
    check_verified_problems(128, false, DataType::fp16);
}
TEST_CASE("fp16 with head_dim 128 matches fp64 with a causal mask") {
    check_verified_problems(128, true, DataType::fp16);
}

TEST_CASE("queries and keys of different numbers match fp64") {
    EmulatedSession session;
    for (const auto& [seqlen_q, seqlen_kv] : {std::pair{64, 384}, std::pair{320, 128}}) {
        tool::CheckedProblem problem = square_problem(1, 2, seqlen_q, 64, false);
        problem.problem.seqlen_kv = seqlen_kv;
        problem.repeats = 1;
        tool::ProblemCheck check(session.kernels(), problem);
        for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
            require_passed(check.check(std::string(preset.name), preset.config));
        }
    }
}

TEST_CASE("what plans choose by themselves matches fp64 at lengths of both families chosen") {
    EmulatedSession session;
    const device::Target& target = session.device().properties().target;
    const tool::NamedConfig chosen = tool::parse_kernel(tool::default_kernel);
    std::vector<KernelFamily> families;
    for (const std::int64_t head_dim : {64, 128}) {
        for (const std::int64_t seqlen : {96, 192, 256}) {
            tool::CheckedProblem problem = square_problem(1, 2, seqlen, head_dim, true);
            problem.repeats = 1;
            const TileConfig config = tool::config_for(chosen, problem.problem, target);
            require_passed(
                tool::check_problem(session.kernels(), problem, to_string(config), config));
            families.push_back(config.family);
        }
    }
    CHECK(std::ranges::count(families, KernelFamily::wgmma) == 6);
}

TEST_CASE("words that differ are counted on the device") {
    EmulatedSession session;
    require_differences_counted(session.kernels());
}

/// The least sequence that both tiles divide: one query tile, or one key tile, or both.
std::int64_t one_tile(const Geometry& geometry) {
    return std::max(geometry.block_q, geometry.block_kv);
}

void check_geometries(std::int64_t head_dim, bool causal) {
    EmulatedSession session;
    const std::size_t most = session.device().properties().target.shared_bytes_per_block;
    std::size_t checked = 0;
    for (const Geometry& geometry : geometries) {
        const TileConfig config = tile_config(geometry);
        if (shared_memory_bytes(config, head_dim) > most) {
            continue;
        }
        for (const std::int64_t seqlen : {one_tile(geometry), 2 * one_tile(geometry)}) {
            tool::CheckedProblem problem = square_problem(1, 1, seqlen, head_dim, causal);
            problem.repeats = 1;
            require_passed(
                tool::check_problem(session.kernels(), problem, to_string(config), config));
        }
        ++checked;
    }
    CHECK(checked >= geometries.size() - 2);
}

TEST_CASE("any configuration that the geometry allows matches fp64 without a mask") {
    check_geometries(64, false);
}
TEST_CASE("any configuration that the geometry allows matches fp64 with a causal mask") {
    check_geometries(128, true);
}

TEST_CASE("constant sequence lengths give the bits of dK and dV that run-time lengths give") {
    EmulatedSession session;
    for (const bool causal : {false, true}) {
        tool::CheckedProblem problem = square_problem(1, 2, 256, 64, causal);
        problem.repeats = 1;
        tool::ProblemCheck check(session.kernels(), problem);
        require_length_modes_alike(session.kernels(), check);
    }
}

TEST_CASE("programmatic dependent launch changes no bit of dK and dV and dQ stays right") {
    EmulatedSession session;
    tool::CheckedProblem problem = square_problem(1, 2, 128, 64, true);
    problem.repeats = 10;
    tool::ProblemCheck check(session.kernels(), problem);
    require_launches_alike(session.kernels(), check);
}

TEST_CASE("sm_120a matches fp64 and refuses what its shared memory does not hold") {
    EmulationOptions options = one_thread();
    options.target = "sm_120a";
    EmulatedSession session(options);
    const std::size_t most = session.device().properties().target.shared_bytes_per_block;
    CHECK(most == std::size_t{99} * 1024);
    std::size_t refused = 0;
    for (const bool causal : {false, true}) {
        tool::CheckedProblem problem = square_problem(1, 2, 128, 128, causal);
        problem.repeats = 1;
        for (const KernelPreset& preset : presets_for(session.kernels(), problem.problem)) {
            tool::ProblemCheck check(session.kernels(), problem);
            CAPTURE(preset.name);
            CHECK(shared_memory_bytes(preset.config, 128) <= most);
            require_passed(check.check(std::string(preset.name), preset.config));
        }
    }
    try {
        session.runtime().backward(square_problem(1, 2, 128, 128, true).problem,
                                   kernel_preset("wgmma"));
        FAIL_CHECK("wgmma is not refused");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::unsupported);
        CHECK(std::string(error.what()).find("family is wgmma") != std::string::npos);
    }
    for (const Geometry& geometry : geometries) {
        const TileConfig config = tile_config(geometry);
        if (shared_memory_bytes(config, 128) > most) {
            ++refused;
            try {
                session.runtime().backward(square_problem(1, 1, 384, 128, false).problem, config);
                FAIL_CHECK("not refused: " << to_string(config));
            } catch (const Error& error) {
                CHECK(error.code() == ErrorCode::shared_memory_exceeded);
            }
        }
    }
    CHECK(refused > 0);
}

}  // namespace

}  // namespace backlight::test
