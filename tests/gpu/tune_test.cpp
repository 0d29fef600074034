// The tuner on a GPU: a small shape, every step with real kernels and real times.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "backlight/tuning.hpp"
#include "checked_problems.hpp"
#include "gpu_test_support.hpp"
#include "runtime_implementation.hpp"
#include "session/gpu.hpp"
#include "tuning/database.hpp"

namespace backlight::test {

namespace {

/// A database of the test's own, removed with it.
class DatabaseFile {
  public:
    DatabaseFile()
        : path_(std::filesystem::temp_directory_path() /
                ("backlight-tune-test-" + std::to_string(getpid()) + ".json")) {}
    ~DatabaseFile() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
        std::filesystem::remove(path_.string() + ".lock", ignored);
    }
    DatabaseFile(const DatabaseFile&) = delete;
    DatabaseFile& operator=(const DatabaseFile&) = delete;

    const std::filesystem::path& path() const noexcept { return path_; }

  private:
    std::filesystem::path path_;
};

TEST_CASE("a small shape is tuned and plans use the winner and the presets do not beat it") {
    const DatabaseFile database;
    RuntimeOptions options;
    options.tuning_database = database.path();
    tool::Gpu gpu(options);
    const AttentionProblem problem = square_problem(4, 8, 512, 64, true).problem;
    TuneOptions tuning;
    tuning.stream = gpu.stream();
    tuning.candidates = {tile_config({32, 64, 4, 2}), tile_config({64, 64, 4, 2}),
                         tile_config({64, 128, 8, 1})};
    const TuneReport report = gpu.runtime().tune(problem, tuning);

    CHECK(report.complete);
    CHECK(gpu.runtime().backward(problem)->config() == report.winner);
    const auto winner = std::ranges::find(report.candidates, report.winner, &TuneCandidate::config);
    REQUIRE(winner != report.candidates.end());
    CHECK(winner->outcome == TuneOutcome::timed);
    CHECK(winner->samples_milliseconds.size() == static_cast<std::size_t>(tuning.repeats));
    for (const TuneCandidate& candidate : report.candidates) {
        CAPTURE(to_string(candidate.config));
        CHECK_MESSAGE(candidate.outcome != TuneOutcome::wrong, candidate.note);
        CHECK_MESSAGE(candidate.outcome != TuneOutcome::refused, candidate.note);
        // Milliseconds, and not the host's time for three launches nor nothing at all.
        if (candidate.outcome == TuneOutcome::timed) {
            CHECK(candidate.median_milliseconds > 0.005);
            CHECK(candidate.median_milliseconds < 50);
            // None beats the winner by more than the largest noise there is.
            CHECK(candidate.median_milliseconds >= 0.97 * winner->median_milliseconds);
        }
    }
    // Another process finds it, and has nothing left to time but what every run is compared by.
    tool::Gpu later(options);
    CHECK(later.runtime().backward(problem)->config() == report.winner);
    tuning.stream = later.stream();
    const TuneReport again = later.runtime().tune(problem, tuning);
    CHECK(again.winner == report.winner);
    for (const TuneCandidate& candidate : again.candidates) {
        CAPTURE(to_string(candidate.config));
        CHECK((candidate.from_database || candidate.outcome == TuneOutcome::spilled ||
               candidate.config == kernel_preset("v3")));
    }
}

}  // namespace

}  // namespace backlight::test
