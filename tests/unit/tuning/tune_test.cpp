// The whole tuner without a GPU: on the emulated device, whose times mean nothing but whose kernels
// and gradients are real; and what a Runtime does with its choice.

#include <algorithm>
#include <chrono>
#include <limits>

#include "backlight/error.hpp"
#include "backlight/tuning.hpp"
#include "emulation/emulated_runtime.hpp"
#include "runtime_implementation.hpp"
#include "tuning/database.hpp"
#include "tuning/gradient_check.hpp"
#include "tuning/kernel_digest.hpp"
#include "tuning/scratch_memory.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;

namespace {

const AttentionProblem tiny{.seqlen_q = 32, .seqlen_kv = 32, .head_dim = 64};
const TileConfig small{.block_q = 16, .block_kv = 32, .warps = 2, .stages = 1};
const TileConfig loads_ahead{.block_q = 16, .block_kv = 32, .warps = 2, .stages = 2};

}  // namespace

TEST_CASE("the whole tuner runs on the emulated device and its choice lasts in the database") {
    const TemporaryDirectory folder;
    const RuntimeOptions options{.cache_directory = folder.path() / "cache",
                                 .tuning_database = folder.path() / "tuning.json"};
    const TuneOptions tuning{.repeats = 5, .candidates = {small, loads_ahead}};
    TileConfig winner;
    {
        Runtime runtime = emulation::make_emulated_runtime({}, options);
        const TuneReport report = runtime.tune(tiny, tuning);
        CHECK(report.complete);
        CHECK(report.problem == tiny);
        for (const TileConfig& config : tuning.candidates) {
            const auto found = std::ranges::find(report.candidates, config, &TuneCandidate::config);
            REQUIRE(found != report.candidates.end());
            CHECK_MESSAGE(
                (found->outcome == TuneOutcome::timed || found->outcome == TuneOutcome::slow),
                found->note);
            CHECK(found->median_milliseconds > 0);
            CHECK(!found->kernel_digest.empty());
        }
        CHECK(std::ranges::count(report.candidates, TuneOutcome::timed, &TuneCandidate::outcome) >
              0);
        winner = report.winner;
        CHECK(runtime.backward(tiny)->config() == winner);
    }
    const tuning::Database database = tuning::read_database(options.tuning_database);
    CHECK(database.records().size() >= 2);
    CHECK(std::ranges::count(database.records(), winner, &tuning::Record::config) == 1);
    Runtime later = emulation::make_emulated_runtime({}, options);
    CHECK(later.backward(tiny)->config() == winner);
    CHECK(later.counters().compiles == 0);
}

TEST_CASE("a kernel that computes wrong gradients is found by the tuner and cannot win") {
    const TemporaryDirectory folder;
    // Rows of dQ get the factor of the softmax twice.
    const std::vector<emulation::SourceEdit> edits = {
        {.file = "attention_backward_convert.cu",
         .from = "arguments.softmax_scale",
         .to = "arguments.softmax_scale * arguments.softmax_scale"},
        {.file = "attention_backward_mma_resident/converter.cuh",
         .from = "scale_at_store(arguments_.softmax_scale)",
         .to = "scale_at_store(arguments_.softmax_scale * arguments_.softmax_scale)"},
        {.file = "attention_backward_wgmma/converter.cuh",
         .from =
             "rows{shared_.converted()};\n        const float scale = arguments_.softmax_scale;",
         .to = "rows{shared_.converted()};\n        const float scale = "
               "arguments_.softmax_scale * arguments_.softmax_scale;"}};
    Runtime runtime =
        emulation::make_emulated_runtime({},
                                         {.cache_directory = folder.path() / "cache",
                                          .tuning_database = folder.path() / "tuning.json"},
                                         edits);
    // None is left that could win, so there is no winner to tell.
    check_refused(ErrorCode::kernel_fault,
                  {"seqlen_q=32", "that were checked", "none can win", ": dQ: relative L2"},
                  [&] { runtime.tune(tiny, {.repeats = 5, .candidates = {small}}); });
    for (const tuning::Record& record :
         tuning::read_database(folder.path() / "tuning.json").records()) {
        CHECK(!record.checked);
    }
}

TEST_CASE("tuning leaves all memory but its own as it was") {
    const TemporaryDirectory folder;
    Runtime runtime =
        emulation::make_emulated_runtime({}, {.cache_directory = folder.path() / "cache"});
    device::Device& device = runtime.implementation().device();
    // As large as the tensors of the problem, and of every alignment that an allocator gives.
    std::vector<std::pair<tuning::ScratchMemory, std::vector<std::byte>>> kept;
    for (std::size_t bytes = 256; bytes <= (std::size_t{1} << 16U); bytes *= 2) {
        std::vector<std::byte> content(bytes);
        for (std::size_t i = 0; i < bytes; ++i) {
            content[i] = static_cast<std::byte>((i * 7 + bytes) & 0xffU);
        }
        kept.emplace_back(tuning::ScratchMemory(device, bytes), content);
        device.copy_to_device(kept.back().first.as<void>(), content);
    }
    runtime.tune(tiny, {.repeats = 5, .candidates = {small}});
    for (const auto& [memory, content] : kept) {
        std::vector<std::byte> now(content.size());
        device.copy_to_host(now, memory.as<void>());
        CHECK(now == content);
    }
}

TEST_CASE("a refused candidate names its rule before anything is timed") {
    const TemporaryDirectory folder;
    Runtime runtime =
        emulation::make_emulated_runtime({}, {.cache_directory = folder.path() / "cache"});
    const TileConfig odd{.block_q = 16, .block_kv = 32, .warps = 3};
    check_refused(ErrorCode::invalid_argument, {"warps is 3"},
                  [&] { runtime.tune(tiny, {.candidates = {odd}}); });
    check_refused(ErrorCode::unsupported, {"head_dim is 136"}, [&] {
        runtime.tune({.seqlen_q = 64, .seqlen_kv = 64, .head_dim = 136}, {.kernel_family = "mma"});
    });
    check_refused(ErrorCode::unsupported, {"'ptx'", "mma, wgmma, mma_resident"},
                  [&] { runtime.tune(tiny, {.kernel_family = "ptx"}); });
    AttentionProblem odd_length = tiny;
    odd_length.seqlen_q = odd_length.seqlen_kv = 33;
    check_refused(ErrorCode::unsupported,
                  {"kernel_family is 'mma'", "none of its kernels takes", "seqlen_kv=33"},
                  [&] { runtime.tune(odd_length, {.kernel_family = "mma"}); });
    CHECK(runtime.counters().compiles == 0);
}

TEST_CASE("packed sequences are refused by the tuner as such even where there are none") {
    fresh_driver();
    Runtime runtime(fake_options());
    AttentionProblem packed = tuned_problem();
    packed.packed = PackedSequences{.total_q = 0, .total_kv = 4096};
    check_refused(ErrorCode::unsupported, {"packed is given", "without it"},
                  [&] { runtime.tune(packed, {}); });
    AttentionProblem empty = tuned_problem();
    empty.seqlen_kv = 0;
    check_refused(ErrorCode::invalid_argument, {"seqlen_kv is 0", "nothing to tune"},
                  [&] { runtime.tune(empty, {}); });
}

TEST_CASE("a family that is named is searched, beside the presets of the others, and recorded") {
    const TemporaryDirectory folder;
    const RuntimeOptions options{.cache_directory = folder.path() / "cache",
                                 .tuning_database = folder.path() / "tuning.json"};
    Runtime runtime = emulation::make_emulated_runtime({}, options);
    const AttentionProblem one_tile{.seqlen_q = 64, .seqlen_kv = 128, .head_dim = 64};
    // Nothing but the presets is begun within the budget.
    const TuneReport report = runtime.tune(one_tile, {.kernel_family = "wgmma",
                                                      .budget = std::chrono::duration<double>(1e-9),
                                                      .compile_threads = 1,
                                                      .repeats = 5});
    CHECK_FALSE(report.complete);
    std::size_t presets = 0;
    for (const TuneCandidate& candidate : report.candidates) {
        if (!candidate.preset.empty()) {
            ++presets;
            CHECK_MESSAGE(candidate.outcome == TuneOutcome::timed, candidate.note);
        } else if (candidate.config.family != KernelFamily::wgmma) {
            // Of the fastest, other launches are tried.
            TileConfig usual = candidate.config;
            usual.sequence_lengths = SequenceLengths::run_time;
            usual.programmatic_dependent_launch = true;
            CHECK(std::ranges::count(kernel_presets(), usual, &KernelPreset::config) == 1);
        }
    }
    CHECK(presets == kernel_presets().size());
    CHECK(report.candidates.size() > presets + 10);
    const tuning::Database database = tuning::read_database(options.tuning_database);
    CHECK(std::ranges::count(database.records(), kernel_preset("wgmma"), &tuning::Record::config) ==
          1);
    for (const tuning::Record& record : database.records()) {
        CHECK(record.families ==
              std::vector{KernelFamily::mma, KernelFamily::wgmma, KernelFamily::mma_resident});
    }
    CHECK(runtime.backward(one_tile)->config() == report.winner);
}

TEST_CASE("a gradient is compared as a whole and row by row and a NaN fails") {
    AttentionProblem problem = tiny;
    problem.dtype = DataType::bf16;
    std::vector<float> values(64 * 64, 1);
    std::fill_n(values.begin(), 64, 0.0F);  // A query that attends to nothing.
    const std::vector<float> reference = values;
    const auto fault = [&](const std::vector<float>& gradient) {
        return tuning::gradient_fault(problem, gradient, reference, 64);
    };
    CHECK(fault(values).empty());
    CHECK(tuning::gradient_fault(problem, std::vector<float>(64), std::vector<float>(64), 64)
              .empty());
    auto changed = values;
    changed[5] = std::numeric_limits<float>::quiet_NaN();
    CHECK(!fault(changed).empty());
    changed = values;
    std::fill_n(changed.begin() + 64, 64, 1.03F);
    CHECK(fault(changed).starts_with("relative L2 of row 1"));
    changed = values;
    std::ranges::fill(changed, 1.008F);
    CHECK(fault(changed).starts_with("relative L2 is"));
}

TEST_CASE("the explicit configuration counts for more than a tuned one") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    RuntimeOptions options = fake_options();
    fresh_driver();
    options.tuning_database = file;
    const AttentionProblem problem = tuned_problem();
    {
        Runtime runtime(options);
        const device::DeviceProperties& device = runtime.implementation().device().properties();
        tuning::Record fast = record(kernel_preset("v1"), 0.5, problem);
        fast.card = tuning::card_of(device);
        fast.kernel_digest = tuning::main_kernel_digest(runtime.implementation().store(), problem,
                                                        fast.config, device.target);
        tuning::write_database(file, database_of({fast}));
    }
    Runtime runtime(options);
    CHECK(runtime.backward(problem)->config() == kernel_preset("v1"));
    CHECK(runtime.backward(problem, kernel_preset("v3"))->config() == kernel_preset("v3"));
    CHECK(runtime.backward(problem)->config() == kernel_preset("v1"));
}

TEST_CASE("asking again for the plan of a problem takes at most 200 ns") {
    RuntimeOptions options = fake_options();
    fresh_driver();
    Runtime runtime(options);
    std::vector<AttentionProblem> problems;
    for (std::int64_t batch = 1; batch <= 64; ++batch) {
        problems.push_back(tuned_problem());
        problems.back().batch = batch;
        runtime.backward(problems.back());
    }
    double least = 1e9;
    const BackwardPlan* seen = nullptr;
    // The best of many: other processes have these cores too.
    for (int turn = 0; turn < 200; ++turn) {
        const auto start = std::chrono::steady_clock::now();
        for (const AttentionProblem& problem : problems) {
            seen = runtime.backward(problem).get();
        }
        const std::chrono::duration<double, std::nano> taken =
            std::chrono::steady_clock::now() - start;
        least = std::min(least, taken.count() / static_cast<double>(problems.size()));
    }
    CHECK(seen != nullptr);
    MESSAGE(least, " ns a lookup");
    CHECK(least <= 200);
}
