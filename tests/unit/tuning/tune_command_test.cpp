// `backlight tune`, its tables and its pictures.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "backlight/error.hpp"
#include "command.hpp"
#include "command_test_support.hpp"
#include "json_file.hpp"
#include "plot_documents.hpp"
#include "temporary_directory.hpp"
#include "tune.hpp"
#include "tune_report.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tool;

namespace {

void check_failure(const std::vector<std::string>& arguments,
                   std::initializer_list<std::string_view> fragments) {
    const Outcome outcome = command(arguments);
    CAPTURE(outcome.errors);
    CHECK(outcome.exit_code == exit_failure);
    for (const std::string_view fragment : fragments) {
        CAPTURE(fragment);
        CHECK(contains(outcome.errors, fragment));
    }
}

TuneCandidate candidate(const TileConfig& config, const char* preset, double milliseconds) {
    return {.config = config,
            .preset = preset,
            .outcome = TuneOutcome::timed,
            .resources = KernelResources{.registers = 168, .compile_milliseconds = 321},
            .samples_milliseconds = {milliseconds},
            .median_milliseconds = milliseconds,
            .noise = 0.005,
            .baseline_milliseconds = 2};
}

TuneReport report() {
    TuneReport made{.problem = tuned_problem()};
    made.winner = {.block_q = 64, .block_kv = 128, .warps = 8, .stages = 1};
    made.candidates = {candidate(kernel_preset("v1"), "v1", 2.5),
                       candidate(kernel_preset("v2"), "v2", 2.2),
                       candidate(kernel_preset("v3"), "v3", 2), candidate(made.winner, "", 1.6)};
    made.candidates.push_back({.config = {.block_q = 16}, .outcome = TuneOutcome::spilled});
    return made;
}

const char* const no_programs = "/nonexistent";

nlohmann::ordered_json tune_document() {
    return {{"tunings", {to_json(report())}}};
}

nlohmann::ordered_json bench_document() {
    const auto measurement = [](int seqlen, double rate) {
        return nlohmann::ordered_json{
            {"problem",
             {{"seqlen_q", seqlen}, {"head_dim", 128}, {"causal", true}, {"dtype", "bf16"}}},
            {"variants", {{{"kernel", "v3"}, {"tflops", rate}}}},
            {"peers", {{{"name", "cuDNN"}, {"tflops", 2 * rate}}}}};
    };
    return {{"gpu", {{"name", "Test card"}}},
            {"measurements", {measurement(4096, 200), measurement(512, 100)}}};
}

/// A gnuplot that keeps the script that it is given.
class ScriptKeeper {
  public:
    ScriptKeeper() : path_("PATH", folder_.path()) {
        const auto program = folder_.path() / "gnuplot";
        std::ofstream(program) << "#!/bin/sh\n/bin/cp \"$1\" '" << file("script") << "'\n";
        std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    }

    std::string file(const char* name) const { return (folder_.path() / name).string(); }
    std::string script() const {
        std::ifstream kept(file("script"));
        return {std::istreambuf_iterator<char>(kept), {}};
    }

  private:
    TemporaryDirectory folder_;
    Environment path_;
};

}  // namespace

TEST_CASE("a refused argument of tune names the option and its value and the rule") {
    check_failure({"tune", "--shape", "8_16"}, {"invalid_argument", "shape is '8_16'"});
    check_failure({"tune", "--dtype", "fp8"}, {"invalid_argument", "'fp8'"});
    check_failure({"tune", "--tile", "1,2"}, {"invalid_argument", "tile is '1,2'"});
    check_failure({"tune", "--budget", "soon"}, {"invalid_argument", "budget is 'soon'", "60s"});
    check_failure({"tune", "--budget", "0s"}, {"invalid_argument", "budget is '0s'"});
    check_failure({"tune", "--repeats", "1"}, {"invalid_argument", "repeats is 1"});
    check_failure({"tune", "--kernel-family", "ptx"},
                  {"unsupported", "kernel_family is 'ptx'", "families mma, wgmma, mma_resident"});
    check_failure({"tune", "--plot", "picture.jpg"},
                  {"invalid_argument", "plot is 'picture.jpg'", ".svg or .png"});
    check_failure({"tune", "--json", "/nonexistent/report.json"},
                  {"file_error", "/nonexistent/report.json"});
    check_failure({"tune", "--merge", "/nonexistent/tuning.json"},
                  {"file_error", "merge is '/nonexistent/tuning.json'"});
    check_failure({"tune", "--device", "emulated"},
                  {"invalid_argument", "shape is 'B=8 H=16 N=4096", "at most 1024 rows"});
}

TEST_CASE("a picture of a document without measurements is refused and leaves no file") {
    const TemporaryDirectory folder;
    const std::string document = (folder.path() / "host_time.json").string();
    std::ofstream(document) << R"({"gpu": {"name": "Test card"}, "measurements": []})";
    const auto picture = folder.path() / "empty.svg";
    check_failure({"bench", "--plot-from", document, "--plot", picture.string()},
                  {"file_error", "plot-from is '" + document, "measurements", "none"});
    std::ofstream(document) << R"({"tunings": []})";
    check_failure({"tune", "--plot-from", document, "--plot", picture.string()},
                  {"file_error", "plot-from is '" + document, "tunings of a `tune --json`"});
    CHECK_FALSE(std::filesystem::exists(picture));
}

TEST_CASE("a budget is a number of seconds or minutes or hours") {
    CHECK(parse_budget("90") == doctest::Approx(90));
    CHECK(parse_budget("60s") == doctest::Approx(60));
    CHECK(parse_budget("1.5m") == doctest::Approx(90));
    CHECK(parse_budget("2h") == doctest::Approx(7200));
    for (const char* text : {"", "s", "-1s", "0", "1 s", "1d", "nan", "inf", "1e9h"}) {
        CAPTURE(text);
        CHECK_THROWS_AS(parse_budget(text), Error);
    }
}

TEST_CASE("merging and exporting databases needs neither GPU nor driver") {
    const Environment no_driver("BACKLIGHT_DRIVER_PATH", "/nonexistent/libcuda.so.1");
    const TemporaryDirectory folder;
    const auto file = [&](const char* name) { return (folder.path() / name).string(); };
    tuning::Record screened = record(kernel_preset("v1"), 3);
    screened.checked = false;
    tuning::write_database(file("a.json"), database_of({record(kernel_preset("v2"), 1)}));
    tuning::write_database(file("b.json"), database_of({record(kernel_preset("v3"), 2), screened}));
    const Outcome outcome =
        command({"tune", "--merge", file("a.json"), "--merge", file("b.json"), "--database",
                 file("all.json"), "--export", file("shipped.json")});
    CAPTURE(outcome.errors);
    CHECK(outcome.exit_code == exit_success);
    CHECK(contains(outcome.out, "3 records"));
    CHECK(tuning::read_database(file("all.json")).records().size() == 3);
    CHECK(tuning::read_database(file("shipped.json")).records().size() == 2);
}

TEST_CASE("the table tells of each configuration how much faster than the presets it is") {
    const std::string text = format_tune(report());
    CAPTURE(text);
    CHECK(contains(text, "tile_64_128_8_1 *"));
    CHECK(contains(text, "over v1"));
    CHECK(contains(text, "+56.2%"));  // 2.5 / 1.6
    CHECK(contains(text, "+37.5%"));  // 2.2 / 1.6
    CHECK(contains(text, "+25.0%"));  // 2 / 1.6
    CHECK(contains(text, "321 ms"));
    CHECK(contains(text, "168"));
    CHECK(contains(text, "1 spilled"));
    CHECK(text.find("\ntile_64_128_8_1") < text.find("\nv3 "));
    CHECK(!contains(text, "wrong:"));
}

TEST_CASE("of the emulated device's times no winner is named and no speed is told") {
    const std::string text = format_tune(report(), TimesOf::emulated_device);
    CAPTURE(text);
    CHECK(contains(text, "say nothing about a GPU: no winner is named"));
    for (const char* claim : {"*", " ms", "TFLOP", "over v1", "%", "used from now on"}) {
        CAPTURE(claim);
        CHECK_FALSE(contains(text, claim));
    }
    // As they were tried, not by their times.
    CHECK(text.find("\nv1 ") < text.find("\nv3 "));
    CHECK(text.find("\nv3 ") < text.find("\ntile_64_128_8_1 "));
    CHECK(contains(text, "4 timed"));
    const auto document = to_json(report(), TimesOf::emulated_device);
    CHECK(document["winner"].is_null());
    CHECK(document["speed_of_winner_against"]["v1"].is_null());
    CHECK(document["presets_that_beat_the_winner"].empty());
    check_failure({"tune", "--device", "emulated", "--shape", "1_1_64_64", "--plot", "a.svg"},
                  {"invalid_argument", "plot is 'a.svg'", "--device emulated"});
}

TEST_CASE("what plans use is named no winner where it was found to be wrong") {
    TuneReport bad = report();
    CHECK_FALSE(winner_is_wrong(bad));
    CHECK(contains(format_tune(bad), "* used from now on"));
    bad.candidates[3].outcome = TuneOutcome::wrong;
    bad.candidates[3].note = "dQ: relative L2 is 1";
    CHECK(winner_is_wrong(bad));
    const std::string text = format_tune(bad);
    CAPTURE(text);
    CHECK_FALSE(contains(text, "*"));
    CHECK_FALSE(contains(text, "used from now on"));
    CHECK(contains(text, "No winner is named"));
    CHECK(contains(text, "wrong: tile_64_128_8_1: dQ: relative L2 is 1"));
    CHECK(to_json(bad)["winner"].is_null());
    // What was never looked at has not been found wrong.
    bad.winner = {.block_q = 128};
    CHECK_FALSE(winner_is_wrong(bad));
}

TEST_CASE("speeds of different runs are compared by their baselines") {
    TuneReport two_runs = report();
    // Known from a day when the card ran at half the speed.
    two_runs.candidates[0].median_milliseconds = 5;
    two_runs.candidates[0].baseline_milliseconds = 4;
    const auto speed = speed_against(*winner_of(two_runs), two_runs, "v1");
    REQUIRE(speed.has_value());
    CHECK(*speed == doctest::Approx(2.5 / 1.6));
    two_runs.candidates[0].outcome = TuneOutcome::slow;
    CHECK(!speed_against(*winner_of(two_runs), two_runs, "v1"));
}

TEST_CASE("a preset that beats the winner by more than the noise is reported") {
    TuneReport bad = report();
    CHECK(presets_that_beat_the_winner(bad).empty());
    bad.winner = kernel_preset("v2");
    CHECK(presets_that_beat_the_winner(bad) == std::vector<std::string>{"v3"});
    bad.candidates[1].median_milliseconds = 2.005;  // 0.25 percent: noise
    CHECK(presets_that_beat_the_winner(bad).empty());
    CHECK(to_json(bad)["presets_that_beat_the_winner"].empty());
}

TEST_CASE("the JSON of a tuning holds every sample and what follows from it") {
    const auto document = to_json(report());
    CHECK(document["candidates"].size() == 5);
    CHECK(document["candidates"][3]["configuration"] == "tile_64_128_8_1");
    CHECK(document["candidates"][3]["samples_ms"][0] == 1.6);
    CHECK(document["candidates"][4]["outcome"] == "spilled");
    CHECK(document["speed_of_winner_against"]["v3"].get<double>() == doctest::Approx(1.25));
    CHECK(document["winner"]["block_kv"] == 128);
}

TEST_CASE("a script for gnuplot holds the figures and quotes what people wrote") {
    Chart chart = tune_charts({tune_document()}).at(0);
    chart.title = "It's a title";
    const std::string script = gnuplot_script({chart}, "it's.svg");
    CAPTURE(script);
    CHECK(contains(script, "set terminal svg"));
    CHECK(contains(script, "set output 'it''s.svg'"));
    CHECK(contains(script, "set title 'It''s a title'"));
    CHECK(contains(script, "\"tile_64_128_8_1\" 858.993"));  // 1.374 TFLOP in 1.6 ms
    CHECK(contains(script, "with boxes"));
    CHECK(contains(gnuplot_script({chart}, "a.png"), "set terminal pngcairo"));
}

TEST_CASE(
    "without gnuplot a picture is refused before anything is measured and names the package") {
    const Environment path("PATH", no_programs);
    check_failure({"tune", "--plot", "picture.svg"},
                  {"file_error", "gnuplot", "Debian package gnuplot-nox"});
    check_failure({"bench", "--plot", "picture.svg"},
                  {"file_error", "gnuplot", "Debian package gnuplot-nox"});
}

TEST_CASE("a picture of a bench has a line a kernel and a peer over the sequence lengths") {
    const auto charts = bench_charts({bench_document()});
    REQUIRE(charts.size() == 1);
    REQUIRE(charts[0].series.size() == 2);
    CHECK(charts[0].series[0].name == "v3");
    CHECK(charts[0].series[1].name == "cuDNN");
    REQUIRE(charts[0].series[1].points.size() == 2);
    CHECK(charts[0].series[1].points[0].x == 512);
    CHECK(charts[0].series[1].points[0].y == 200);
    CHECK(contains(gnuplot_script(charts, "a.svg"), "set logscale x 2"));
    check_refused(ErrorCode::file_error, {"bench --json"}, [] { bench_charts({{{"a", 1}}}); });
}

TEST_CASE("a picture of a tuning has the presets and the fastest first") {
    nlohmann::ordered_json document = tune_document();
    auto& candidates = document["tunings"][0]["candidates"];
    candidates[1]["outcome"] = "slow";
    candidates[1]["configuration"] = "tile_16_64_4_2";
    const auto charts = tune_charts({document});
    REQUIRE(charts.size() == 1);
    CHECK(charts[0].kind == Chart::Kind::bars);
    REQUIRE(charts[0].series.size() == 3);
    REQUIRE(charts[0].series[0].points.size() == 2);
    CHECK(charts[0].series[0].points[0].label == "v3");
    CHECK(charts[0].series[0].points[1].label == "v1");
    CHECK(charts[0].series[1].points.at(0).label == "tile_64_128_8_1");
    CHECK(charts[0].series[1].points.at(0).y == doctest::Approx(858.993));
    CHECK(charts[0].series[2].name == "screened");
    CHECK(charts[0].series[2].points.at(0).label == "tile_16_64_4_2");
    check_refused(ErrorCode::file_error, {"tune --json"}, [] { tune_charts({bench_document()}); });
}

TEST_CASE("documents of earlier runs are drawn without a driver and the file is told") {
    const Environment no_driver("BACKLIGHT_DRIVER_PATH", "/nonexistent/libcuda.so.1");
    const ScriptKeeper gnuplot;
    write_json(gnuplot.file("tune.json"), tune_document(), std::cout);
    write_json(gnuplot.file("bench.json"), bench_document(), std::cout);
    const std::string picture = gnuplot.file("picture.svg");

    const Outcome tuned = command({"tune", "--plot-from", gnuplot.file("tune.json"), "--plot-from",
                                   gnuplot.file("tune.json"), "--plot", picture});
    CAPTURE(tuned.errors);
    CHECK(tuned.exit_code == exit_success);
    CHECK(tuned.out == picture + ": 2 charts of 2 documents\n");
    CHECK(contains(gnuplot.script(), "set output '" + picture));
    CHECK(contains(gnuplot.script(), "tile_64_128_8_1"));

    const Outcome timed =
        command({"bench", "--plot-from", gnuplot.file("bench.json"), "--plot", picture});
    CAPTURE(timed.errors);
    CHECK(timed.exit_code == exit_success);
    CHECK(timed.out == picture + ": 1 chart of 1 document\n");
    CHECK(contains(gnuplot.script(), "cuDNN"));

    check_failure({"tune", "--plot-from", gnuplot.file("tune.json")},
                  {"invalid_argument", "plot is not given"});
    check_failure({"tune", "--plot-from", gnuplot.file("bench.json"), "--plot", picture},
                  {"file_error", "tune --json"});
    check_failure({"tune", "--merge", "a.json", "--plot", picture},
                  {"invalid_argument", "plot is '" + picture, "nothing is timed"});
}
