// What reports say: who waits where, the place in the source, the seed; and bank conflicts.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/sources.hpp"
#include "small_kernels.hpp"

namespace backlight::test {

namespace {

constexpr const char* mma = "attention_backward_mma.cu";

/// "kernel_sources/attention_backward_mma.cu:312": the line on which the text begins.
std::string site_of(std::string_view text) {
    const std::string_view source = compiler::source_text(mma);
    const std::size_t at = source.find(text);
    REQUIRE_MESSAGE(at != std::string_view::npos, text);
    REQUIRE_MESSAGE(source.find(text, at + 1) == std::string_view::npos, text);
    return fmt::format("kernel_sources/{}:{}", mma,
                       std::ranges::count(source.substr(0, at), '\n') + 1);
}

void require_text(const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
        CHECK_MESSAGE(message.find(part) != std::string::npos, part << " in: " << message);
    }
}

/// One run of two heads under seed 5.
Outcome one_run(std::vector<SourceEdit> edits, std::uint64_t seed = 5) {
    tool::CheckedProblem problem = square_problem(1, 2, 128, 64, false);
    problem.repeats = 1;
    EmulatedSession session(one_thread(seed), std::move(edits));
    tool::ProblemCheck check(session.kernels(), problem);
    return outcome_of([&] {
        check.check("v2", kernel_preset("v2"));
        return std::string();
    });
}

// The edits below keep the number of lines, so that sites are those of the embedded text.

TEST_CASE("a deadlock is reported with every thread and its barrier and phase and source line") {
    const std::string initialised = "mbarrier_initialise(pipeline.barrier(i), 1)";
    const std::string waited = "mbarrier_wait(pipeline.barrier(tile), pipeline.parity(tile));";
    const Outcome outcome =
        one_run({{mma, initialised, "mbarrier_initialise(pipeline.barrier(i), 2)"}});
    REQUIRE(outcome.fault == FaultKind::deadlock);
    require_text(outcome.message,
                 {"deadlock in attention_backward_mma, block ", " of 4, launch 1 with seed 5: ",
                  "threads 0-255: waits for parity 0 of the mbarrier at 0x",
                  "initialised at " + site_of(initialised),
                  "phase 0 is under way, 1 arrivals and 0 bytes missing, 0 copies in flight",
                  "at " + site_of(waited)});
}

TEST_CASE("a deadlock between barriers of the block and of copies names both") {
    const std::string barrier = "// dS is whole.\n        __syncthreads();";
    const Outcome outcome =
        one_run({{mma, barrier, "// dS is whole.\n        if (thread >= 32) __syncthreads();"},
                 {mma, "multiply_transposed(d_k, p_d_kv + d_s_from_p, q_d_kv);",
                  "if (thread < 32) mbarrier_wait(kv_barrier, 1);"}});
    REQUIRE(outcome.fault == FaultKind::deadlock);
    require_text(outcome.message,
                 {"threads 0-31: waits for parity 1 of the mbarrier at 0x", "phase 1 is under way",
                  "threads 32-255: waits at barrier 0 (224 of 256 threads have arrived)",
                  "at " + site_of("multiply_transposed(d_k, p_d_kv + d_s_from_p, q_d_kv);")});
}

TEST_CASE("a data race names both accesses with their lines") {
    const Outcome outcome =
        one_run({{mma, "// dS is whole.\n        __syncthreads();", "// dS is whole.\n        ;"}});
    REQUIRE(outcome.fault == FaultKind::data_race);
    require_text(outcome.message,
                 {site_of("ldmatrix_x4_transposed(a, ScoreTile::moved(a_address, query, 0));") +
                      ": the read of thread ",
                  "no barrier orders the two", "launch 1 with seed 5: "});
}

TEST_CASE("an access out of bounds names its line and what there is") {
    const std::string access = "mbarrier_initialise(kv_barrier, 1);";
    const Outcome outcome = one_run({{mma, access, "mbarrier_initialise(kv_barrier + 4096, 1);"}});
    REQUIRE(outcome.fault == FaultKind::out_of_bounds);
    require_text(outcome.message, {site_of(access) + ": an access of 8 bytes at shared address 0x",
                                   fmt::format("the block has the {:#x} bytes",
                                               shared_memory_bytes(kernel_preset("v2"), 64))});
}

const emulation::BankConflictCount& counts_at(
    const std::vector<emulation::BankConflictCount>& counts, const std::string& site) {
    const auto found = std::ranges::find_if(
        counts, [&](const emulation::BankConflictCount& count) { return count.site == site; });
    REQUIRE_MESSAGE(found != counts.end(), site);
    return *found;
}

/// What a run of one head counts; fails where anything conflicts.
std::vector<emulation::BankConflictCount> counts_without_conflict(const TileConfig& config,
                                                                  std::int64_t seqlen,
                                                                  std::int64_t head_dim) {
    EmulatedSession session({.host_threads = 1, .count_bank_conflicts = true});
    tool::CheckedProblem problem = square_problem(1, 1, seqlen, head_dim, false);
    problem.repeats = 1;
    require_passed(tool::check_problem(session.kernels(), problem, to_string(config), config));
    auto counts = session.device().bank_conflicts();
    CHECK(counts.size() >= 6);
    for (const emulation::BankConflictCount& count : counts) {
        CAPTURE(count.site);
        CHECK(count.wavefronts == count.least_wavefronts);
    }
    return counts;
}

TEST_CASE("no access of the wgmma kernel to shared memory has a bank conflict") {
    for (const std::int64_t head_dim : {64, 128}) {
        counts_without_conflict(kernel_preset("wgmma"), 128, head_dim);
    }
}

TEST_CASE("no access of the register-resident kernel to shared memory has a bank conflict") {
    for (const std::int64_t head_dim : {64, 128}) {
        counts_without_conflict(kernel_preset("v4"), 64, head_dim);
    }
    TileConfig tall = kernel_preset("v4");
    tall.block_q = 64;
    counts_without_conflict(tall, 128, 64);
}

TEST_CASE("no access of the mma kernel to shared memory has a bank conflict") {
    for (const KernelPreset& preset : kernel_presets()) {
        if (preset.config.family != KernelFamily::mma) {
            continue;
        }
        for (const std::int64_t head_dim : {64, 128}) {
            const auto counts = counts_without_conflict(preset.config, 64, head_dim);

            // P, and dS: a store of each warp for every half of every fragment.
            const TileConfig& config = preset.config;
            const auto query_tiles = static_cast<std::uint64_t>(64 / config.block_q);
            const auto stores = query_tiles * static_cast<std::uint64_t>(config.block_q / 16) *
                                static_cast<std::uint64_t>(config.block_kv / 8);
            const auto& first_rows = counts_at(
                counts, site_of("store_shared(address, pack<Element>(fragment[0], fragment[1]));"));
            CHECK(first_rows.executions == 2 * stores);
            CHECK(first_rows.wavefronts == 2 * stores);
            // Four matrices, of eight 16-byte rows each.
            const auto& scores =
                counts_at(counts, site_of("ldmatrix_x4(d_s, ScoreTile::moved(d_s_d_q, 0, key));"));
            CHECK(scores.executions == query_tiles * static_cast<std::uint64_t>(config.warps) *
                                           static_cast<std::uint64_t>(config.block_kv / 16));
            CHECK(scores.wavefronts == 4 * scores.executions);
        }
    }
}

TEST_CASE("bank conflicts are counted by the line that has them") {
    // A column of 16-byte chunks of rows 128 bytes apart: all eight in the same four banks. A
    // column of words in rows of 32 bytes: four lanes a bank.
    const SmallKernel kernel{.name = "conflicts.cu",
                             .text = R"(
    for (int i = 0; i < 8; ++i) { store_shared(shared + (i * 32 + lane) * 16, uint4{1, 2, 3, 4}); }
    __syncwarp();
    OperandRegister rows[4];
    ldmatrix_x4(rows, shared + lane * 128);
    const uint32_t word = load_shared<uint32_t>(shared + lane * 16);
    arguments.out[lane] = rows[0] + rows[1] + rows[2] + rows[3] + word;
)",
                             .threads = 32,
                             .shared_bytes = 4096,
                             .source = {0},
                             .expected = [] {
                                 std::vector<std::uint32_t> expected(32);
                                 for (std::uint32_t i = 0; i < 32; ++i) {
                                     expected[i] = 4 * (i % 4 + 1) + 1;
                                 }
                                 return expected;
                             }()};
    EmulatedSession session({.host_threads = 1, .count_bank_conflicts = true});
    const Outcome outcome = run_small_kernel(session, kernel, 1);
    CHECK_MESSAGE(outcome.passed(), to_string(outcome));
    const auto line = [](int of_text) {
        return fmt::format("kernel_sources/conflicts.cu:{}",
                           of_text + std::ranges::count(small_kernel_preamble, '\n'));
    };
    const auto counts = session.device().bank_conflicts();
    REQUIRE(counts.size() == 3);
    const auto& stores = counts_at(counts, line(2));
    CHECK(stores.executions == 8);
    CHECK(stores.wavefronts == stores.least_wavefronts);
    const auto& matrices = counts_at(counts, line(5));
    CHECK(matrices.executions == 1);
    CHECK(matrices.least_wavefronts == 4);
    CHECK(matrices.wavefronts == 8 * 4);
    const auto& words = counts_at(counts, line(6));
    CHECK(words.executions == 1);
    CHECK(words.least_wavefronts == 1);
    CHECK(words.wavefronts == 4);
}

TEST_CASE("bank conflicts that a dropped swizzle makes are counted") {
    // Consistently dropped, for tiles that only the kernel itself writes, it changes no result.
    EmulatedSession session({.host_threads = 1, .count_bank_conflicts = true},
                            {{"primitives/swizzle.cuh", "chunk ^ (row % 8)", "chunk"}});
    tool::CheckedProblem problem = square_problem(1, 1, 64, 64, false);
    problem.repeats = 1;
    tool::ProblemCheck check(session.kernels(), problem);
    outcome_of([&] {
        check.check("v2", kernel_preset("v2"));
        return std::string();
    });
    const auto counts = session.device().bank_conflicts();
    const auto& scores =
        counts_at(counts, site_of("ldmatrix_x4(d_s, ScoreTile::moved(d_s_d_q, 0, key));"));
    CHECK(scores.wavefronts == 8 * 4 * scores.executions);
}

}  // namespace

}  // namespace backlight::test
