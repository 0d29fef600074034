// The reproduction of a published table: what it is of, how both processes' figures come together,
// what is said of card and clocks. No GPU: samples and the peers' document are made up.

#include "reproduction.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "bench_report.hpp"
#include "command_test_support.hpp"
#include "reproduce.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::command;
using test::contains;
using test::Outcome;

namespace {

ProblemReport report_of(const std::string& kernel, bool passed) {
    ProblemReport report{.kernel = kernel};
    report.problem.reference = Reference::device_fp32;
    for (const char* tensor : gradient_names) {
        report.tensors.push_back({.tensor = tensor, .accuracy = {.relative_l2 = 2e-3}});
    }
    if (!passed) {
        report.failures.emplace_back("dK: far off");
    }
    return report;
}

/// v3 of 8.5866 ms alone, and nothing beside it.
Reproduction alone(const std::string& gpu, double clock = 2407) {
    Reproduction made{.table = published_table("article"), .wanted_peers = {"cudnn", "fa2"}};
    made.kernels = {"v3"};
    made.environment.gpu = gpu;
    made.regime = "cool";
    made.bench = {{"measurements",
                   {{{"variants",
                      {{{"kernel", "v3"},
                        {"median_ms", 8.5866},
                        {"samples_ms", {8.5866, 8.5, 9, 8.4, 8.7}},
                        {"sm_clock_mhz", {clock, clock, nullptr, clock, clock}}}}}}}}};
    made.accuracy.push_back(report_of("v3", true));
    made.bus_id = "00000000:01:00.0";
    made.clocks_before = {.sm_clock_mhz = clock, .highest_sm_clock_mhz = 3135};
    made.peers.problem = "there is no python3";
    return made;
}

constexpr const char* geforce = "NVIDIA GeForce RTX 5090";

/// As bench_peers.py writes it: v3 twice as fast as cuDNN, with a late sample; no FlashAttention-2.
nlohmann::ordered_json peers_document() {
    return nlohmann::ordered_json::parse(R"({
        "cells": [{"cell": "8_16_4096_128_causal",
            "regimes": {"cool": {"contestants": {
                "backlight/v3": {"samples_ms": [5, 5, 90], "late": [2], "median_ms": 5,
                                 "sm_clock_mhz": [2407, 2400, null]},
                "cudnn": {"samples_ms": [10, 11, 9], "late": [], "median_ms": 10,
                          "sm_clock_mhz": [2407, 2407, 2407]}}}},
            "errors": {"fa2": "RuntimeError: no kernel for this card"}}],
        "accuracy": [
            {"cell": "8_16_4096_128_causal", "dtype": "fp16", "contestants": {}},
            {"cell": "8_16_4096_128_causal", "dtype": "bf16", "contestants": {
                "cudnn": {"against_fp32": {"d_q": {"relative_l2": 0.001},
                                           "d_k": {"relative_l2": 0.002},
                                           "d_v": {"relative_l2": null}}}}}]})");
}

const ReproducedRow& row_of(const std::vector<ReproducedRow>& rows, const std::string& kernel) {
    const auto found = std::ranges::find(rows, kernel, &ReproducedRow::kernel);
    REQUIRE(found != rows.end());
    return *found;
}

void check_refusal(std::vector<std::string> options,
                   std::initializer_list<std::string_view> fragments) {
    options.insert(options.begin(), "bench");
    const Outcome outcome = command(options);
    CAPTURE(outcome.errors);
    CHECK(outcome.exit_code != 0);
    CHECK(outcome.out.empty());
    for (const std::string_view fragment : fragments) {
        CAPTURE(fragment);
        CHECK(contains(outcome.errors, fragment));
    }
}

}  // namespace

TEST_CASE("the published table is of one causal bf16 problem and its figures agree in themselves") {
    const PublishedTable& table = published_table("article");
    CHECK(table.problem() == AttentionProblem{.batch = 8,
                                              .heads = 16,
                                              .seqlen_q = 4096,
                                              .seqlen_kv = 4096,
                                              .head_dim = 128,
                                              .causal = true,
                                              .dtype = DataType::bf16});
    REQUIRE(table.figures.size() == 5);
    for (const PublishedFigure& figure : table.figures) {
        CAPTURE(figure.kernel);
        const double rate = tflops(backward_flops(table.problem()), figure.milliseconds);
        CHECK(figure.tflops == doctest::Approx(rate).epsilon(0.0002));
        CHECK(figure.percent_of_peak ==
              doctest::Approx(100 * rate / table.peak_tflops).epsilon(0.0002));
    }
    CHECK(table.figure("v4") == nullptr);
    check_refused(ErrorCode::invalid_argument, {"reproduce is 'paper'", "article"},
                  [] { published_table("paper"); });
}

TEST_CASE("numbered presets are those named v and a number, in the order of the presets") {
    const auto names = numbered_presets();
    REQUIRE(names.size() >= 4);
    CHECK(std::vector(names.begin(), names.begin() + 4) ==
          std::vector<std::string>{"v1", "v2", "v3", "v4"});
    CHECK(std::ranges::count(names, "wgmma") == 0);
}

TEST_CASE("without peers a kernel has its own time and error and each peer the reason") {
    const auto rows = rows_of(alone(geforce));
    REQUIRE(rows.size() == 3);
    const ReproducedRow& v3 = row_of(rows, "v3");
    CHECK(v3.median_ms == 8.5866);
    CHECK(v3.p10_ms == 8.4);
    CHECK(v3.p90_ms == 9);
    CHECK(*v3.tflops == doctest::Approx(160.06).epsilon(0.0001));
    CHECK_FALSE(v3.beside_peers);
    CHECK(v3.errors[1] == 2e-3);
    CHECK(v3.problem.empty());
    CHECK(row_of(rows, "cudnn").problem == "there is no python3");
    CHECK_FALSE(row_of(rows, "fa2").median_ms);
}

TEST_CASE("beside peers the times are those of their process without late samples") {
    Reproduction made = alone(geforce);
    made.peers = {.document = peers_document()};
    const auto rows = rows_of(made);
    const ReproducedRow& v3 = row_of(rows, "v3");
    CHECK(v3.beside_peers);
    CHECK(v3.median_ms == 5);
    CHECK(v3.p90_ms == 5);
    CHECK(v3.alone_median_ms == 8.5866);
    CHECK(v3.errors[0] == 2e-3);
    CHECK(row_of(rows, "cudnn").median_ms == 10);
    CHECK(row_of(rows, "cudnn").errors[0] == 0.001);
    CHECK_FALSE(row_of(rows, "cudnn").errors[2]);
    CHECK(contains(row_of(rows, "fa2").problem, "no kernel for this card"));

    const auto json = to_json(made);
    const auto& kernels = json["cells"][0]["kernels"];
    CHECK(json["schema"] == reproduction_schema);
    CHECK(kernels[2]["kernel"] == "v3");
    CHECK(kernels[2]["measured"] == "beside peers");
    CHECK(kernels[2]["speed_ratio_to_peers"]["cudnn"] == 2.0);
    CHECK(kernels[2]["speed_ratio_to_peers"]["fa2"].is_null());
    CHECK(kernels[2]["speed_ratio_to_published"].get<double>() ==
          doctest::Approx(8.5866 / 5).epsilon(1e-9));
    CHECK(json["peers"]["document"] == made.peers.document);
    CHECK(json["measurements"][0]["variants"][0]["samples_ms"].size() == 5);
    CHECK(json["clocks"]["during"]["lowest_mhz"] == 2400);
}

TEST_CASE("a document of another kind is refused and not half understood") {
    Reproduction made = alone(geforce);
    made.peers = {.document = {{"cells", {{{"regimes", {{"cool", 1}}}}}}}};
    check_refused(ErrorCode::file_error, {"bench_peers.py"}, [&] { rows_of(made); });
}

TEST_CASE("on the card of the table there are a percentage, a ratio and how to lock the clock") {
    const Reproduction made = alone(geforce);
    const std::string text = format_reproduction(made);
    CAPTURE(text);
    CHECK(contains(text, "8.5866   160.06   76.40"));
    CHECK(contains(text, "1.000"));
    CHECK(contains(text, "published figures are of this clock"));
    CHECK(contains(text, "Peers: there is no python3"));
    const auto json = to_json(made);
    CHECK(json["published_card"] == true);
    CHECK(json["clocks"]["commands_to_lock"][1] ==
          "sudo nvidia-smi -i 00000000:01:00.0 -lgc 2407,2407");
    CHECK(contains(json["send"].get<std::string>(), "issue"));
    const std::string other_clock = format_reproduction(alone(geforce, 2700));
    CHECK(contains(other_clock, "hold at that clock only"));
}

TEST_CASE("on another card the published figures stand beside ours and are not compared") {
    const Reproduction made = alone("NVIDIA H200", 1980);
    const std::string text = format_reproduction(made);
    CAPTURE(text);
    CHECK(contains(text, "NOT the card of the published table"));
    CHECK(contains(text, "8.5866   160.06       -"));
    const auto json = to_json(made);
    const auto& v3 = json["cells"][0]["kernels"][2];
    CHECK(json["published_card"] == false);
    CHECK(v3["percent_of_published_peak"].is_null());
    CHECK(v3["speed_ratio_to_published"].is_null());
    CHECK(v3["published"]["latency_ms"] == 8.5866);
    CHECK(json["clocks"]["commands_to_lock"].empty());
}

TEST_CASE("a kernel with wrong gradients or left out or never reached is told by name") {
    Reproduction made = alone(geforce);
    made.accuracy = {report_of("v3", false)};
    made.left_out = {{"v9", "needs more shared memory"}};
    made.kernels.emplace_back("v4");
    made.failure = "driver_failed: v4: lost";
    const std::string text = format_reproduction(made);
    CAPTURE(text);
    CHECK(contains(text, "v3: wrong: dK: far off"));
    CHECK(contains(text, "v9: needs more shared memory"));
    CHECK(contains(text, "v4: driver_failed: v4: lost"));
    CHECK(to_json(made)["failure"] == "driver_failed: v4: lost");
}

TEST_CASE("a clock is held, at its highest, moving or unknown by its readings") {
    CHECK(observed_clock({}, 3000).behaviour == ClockBehaviour::unknown);
    CHECK(observed_clock({2407, 2400, 2407}, 3000).behaviour == ClockBehaviour::held);
    CHECK(observed_clock({1980, 1980}, 1980).behaviour == ClockBehaviour::at_highest);
    CHECK(observed_clock({1980, 1980}, std::nullopt).behaviour == ClockBehaviour::held);
    const ObservedClock moving = observed_clock({2850, 2400, 2700}, 3000);
    CHECK(moving.behaviour == ClockBehaviour::moving);
    CHECK(moving.lowest_mhz == 2400);
    CHECK(moving.median_mhz == 2700);
    CHECK(locking_commands("", 2407, 575)[2] == "sudo nvidia-smi -rgc");
}

TEST_CASE("reproduce refuses what its table settles and its own options stand for nothing alone") {
    check_refusal({"--reproduce", "paper"},
                  {"invalid_argument", "reproduce is 'paper'", "article"});
    check_refusal({"--reproduce", "article", "--shape", "1_1_128_64"},
                  {"invalid_argument", "shape is '1_1_128_64'", "left out with --reproduce"});
    check_refusal({"--reproduce", "article", "--full"}, {"full is", "left out with --reproduce"});
    check_refusal({"--reproduce", "article", "--repeats", "5"}, {"repeats is 5", "20 or more"});
    check_refusal({"--reproduce", "article", "--kernel", "v99"}, {"unknown_kernel", "v99"});
    check_refusal({"--reproduce", "article", "--python", "/nonexistent/python"},
                  {"python is '/nonexistent/python'", "must be"});
    check_refusal({"--reproduce", "article", "--json", "/nonexistent/a.json"},
                  {"file_error", "/nonexistent/a.json"});
    check_refusal({"--python", "python3"}, {"python is 'python3'", "left out without --reproduce"});
    check_refusal({"--no-peers"}, {"no-peers is", "left out without --reproduce"});
    check_refusal({"--reproduce", "article", "--device", "emulated"},
                  {"device is 'emulated'", "a CUDA device with --reproduce", "verify"});
}

TEST_CASE("reproduce measures every numbered preset that the card takes and writes one document") {
    const test::TemporaryDirectory folder;
    const test::Environment cache_path("BACKLIGHT_CACHE_PATH", (folder.path() / "cubins").string());
    const test::Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    fault::FakeDriver& driver = test::fresh_driver();
    PublishedTable table = published_table("article");
    table.shape = "1_4_128_64";
    const ReproduceOptions options{
        .repeats = 20, .cool = false, .matmul = false, .peers = {.wanted = false}, .json = "-"};
    std::ostringstream out;
    // The fake driver computes nothing: no gradient is right, and that must show.
    CHECK_FALSE(reproduce(table, options, out));
    const auto json = nlohmann::json::parse(out.str());
    const auto& kernels = json["cells"][0]["kernels"];
    REQUIRE(kernels.size() == 2 + numbered_presets().size());
    for (std::size_t i = 0; i < numbered_presets().size(); ++i) {
        CHECK(kernels[i + 2]["kernel"] == numbered_presets()[i]);
        CHECK(kernels[i + 2]["measured"] == "alone");
    }
    CHECK(json["measurements"][0]["variants"][0]["samples_ms"].size() == 20);
    CHECK(json["peers"]["present"] == false);
    CHECK(json["failure"].is_null());
    CHECK(driver.fake_launch_count() > 0);
}
