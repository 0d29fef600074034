// The figures of a benchmark and how they are told. No GPU: samples are made up.

#include "bench_report.hpp"

#include <doctest/doctest.h>

#include <string>

#include "datasheet.hpp"
#include "text_table.hpp"

using namespace backlight;
using namespace backlight::tool;

namespace {

/// The problem whose figures the literature gives: 10·8·16·4096²·128 / 2 operations.
const AttentionProblem published{
    .batch = 8, .heads = 16, .seqlen_q = 4096, .seqlen_kv = 4096, .head_dim = 128, .causal = true};

std::vector<Sample> samples_of(std::initializer_list<double> milliseconds) {
    std::vector<Sample> samples;
    for (const double value : milliseconds) {
        samples.push_back({.milliseconds = value, .sm_clock_mhz = 1980, .power_watts = 650.4});
    }
    return samples;
}

ProblemResult result_of(bool with_matmul) {
    KernelResources delta{.kernel = "attention_backward_delta", .registers = 40};
    KernelResources main{.kernel = "attention_backward_mma",
                         .target = "sm_120a",
                         .registers = 255,
                         .spill_store_bytes = 60};
    ProblemResult result{.problem = published, .layout = "bhsd"};
    result.variants.push_back({.name = "v3",
                               .config = kernel_preset("v3"),
                               .resources = {delta, main, delta},
                               .workspace_bytes = 1024,
                               .samples = samples_of({8.5866, 9, 8.5})});
    if (with_matmul) {
        result.matmul = MatmulResult{.library = "cuBLAS 13.1.0",
                                     .size = 8192,
                                     .flops = 2.0 * 8192 * 8192 * 8192,
                                     .samples = samples_of({5.497558})};
    }
    return result;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

const Peaks geforce = datasheet_peaks("NVIDIA GeForce RTX 5090");

}  // namespace

TEST_CASE("the causal backward of 8_16_4096_128 counts 1.374 TFLOP and moves 1.076 GB") {
    CHECK(backward_flops(published) / 1e12 == doctest::Approx(1.374).epsilon(0.0005));
    CHECK(backward_bytes(published) / 1e9 == doctest::Approx(1.076).epsilon(0.0005));
}

TEST_CASE("on an RTX 5090 its lower bounds are 6.56 ms of compute and 0.60 ms of memory") {
    const LowerBounds bounds = lower_bounds(result_of(false), geforce);
    REQUIRE(bounds.compute_milliseconds);
    REQUIRE(bounds.memory_milliseconds);
    CHECK(*bounds.compute_milliseconds == doctest::Approx(6.56).epsilon(0.001));
    CHECK(*bounds.memory_milliseconds == doctest::Approx(0.60).epsilon(0.005));
}

TEST_CASE("lower bounds are empty where the card's peaks are not known") {
    const LowerBounds bounds = lower_bounds(result_of(false), Peaks{});
    CHECK_FALSE(bounds.compute_milliseconds);
    CHECK_FALSE(bounds.memory_milliseconds);
}

TEST_CASE("8.5866 ms of that problem are 160.06 TFLOP per s") {
    CHECK(tflops(backward_flops(published), 8.5866) == doctest::Approx(160.06).epsilon(0.0001));
}

TEST_CASE("the median is the middle value, or the mean of the middle two, in any order") {
    CHECK(median({3}) == 3);
    CHECK(median({9, 1, 5}) == 5);
    CHECK(median({4, 1, 2, 9}) == 3);
    CHECK(median_milliseconds(samples_of({7, 1, 2})) == 2);
    CHECK(least_milliseconds(samples_of({7, 1, 2})) == 1);
}

TEST_CASE("datasheet peaks are of whole device names, never of one that begins alike") {
    CHECK(datasheet_peaks("NVIDIA H200").tflops == 989);
    CHECK(datasheet_peaks("NVIDIA H200").gigabytes_per_second == 4800);
    CHECK(datasheet_peaks("NVIDIA GH200 480GB").gigabytes_per_second == 4000);
    CHECK(datasheet_peaks("NVIDIA H100 PCIe").tflops == 756);
    for (const char* other :
         {"NVIDIA H200 NVL", "NVIDIA H200 MIG 1g.18gb", "NVIDIA GB200",
          "NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 5090 D", ""}) {
        CAPTURE(other);
        CHECK_FALSE(datasheet_peaks(other).tflops);
        CHECK(contains(datasheet_peaks(other).source, "no datasheet figures"));
    }
}

TEST_CASE(
    "the table tells latency, rate, both percentages, clock, power and the main kernel's "
    "registers and spills") {
    const std::string text = format_problem(result_of(true), geforce);
    CAPTURE(text);
    CHECK(contains(text, "B=8 H=16 N=4096 d=128 bf16 causal bhsd"));
    CHECK(contains(text, "8.5866 ms"));
    CHECK(contains(text, "8.5000 ms"));
    CHECK(contains(text, "160.06"));
    CHECK(contains(text, "76.4%"));
    // Of the 200 TFLOP/s that the made-up product of 5.497558 ms comes to.
    CHECK(contains(text, "80.0%"));
    CHECK(contains(text, "matmul 8192³ (cuBLAS 13.1.0)"));
    CHECK(contains(text, "1980"));
    CHECK(contains(text, "650"));
    CHECK(contains(text, "255"));
    CHECK(contains(text, "60 B"));
    CHECK(contains(text, "1.374 TFLOP"));
    CHECK(contains(text, "6.56 ms"));
    CHECK(contains(text, "1792 GB/s"));
    CHECK(contains(text, "0.60 ms"));
}

TEST_CASE("the table of a card without known peaks and without a matmul rate makes no figure up") {
    ProblemResult result = result_of(false);
    for (Sample& sample : result.variants.front().samples) {
        sample.sm_clock_mhz.reset();
        sample.power_watts.reset();
    }
    const std::string text = format_problem(result, Peaks{});
    CAPTURE(text);
    CHECK(contains(text, "160.06"));
    CHECK_FALSE(contains(text, "160.06      -%"));
    CHECK(text.find('%') == text.find("% of peak"));
    CHECK(text.rfind('%') == text.find("% of matmul"));
    CHECK_FALSE(contains(text, "nan"));
    CHECK_FALSE(contains(text, "inf"));
}

TEST_CASE("the JSON of a benchmark holds every sample, the resources and the derived figures") {
    BenchReport report;
    report.environment.gpu = "NVIDIA GeForce RTX 5090";
    report.environment.git_revision = "abc1234";
    report.regime = "cool";
    report.peaks = geforce;
    report.problems.push_back(result_of(true));
    const nlohmann::ordered_json json = to_json(report);
    CHECK(json["gpu"]["name"] == "NVIDIA GeForce RTX 5090");
    CHECK(json["gpu"]["power_limit_watts"].is_null());
    CHECK(json["backlight"]["git_revision"] == "abc1234");
    CHECK(json["protocol"]["regime"] == "cool");
    CHECK(json["protocol"]["repeats"] == 30);
    CHECK(json["peaks"]["tflops"] == 209.5);
    const auto& measurement = json["measurements"][0];
    CHECK(measurement["problem"]["seqlen_kv"] == 4096);
    CHECK(measurement["matmul"]["tflops"].get<double>() == doctest::Approx(200).epsilon(0.001));
    const auto& variant = measurement["variants"][0];
    CHECK(variant["kernel"] == "v3");
    CHECK(variant["config"]["block_q"] == 32);
    CHECK(variant["samples_ms"] == nlohmann::ordered_json({8.5866, 9.0, 8.5}));
    CHECK(variant["sm_clock_mhz"].size() == 3);
    CHECK(variant["power_watts"][2] == 650.4);
    CHECK(variant["median_ms"] == 8.5866);
    CHECK(variant["min_ms"] == 8.5);
    CHECK(variant["percent_of_matmul"].get<double>() == doctest::Approx(80.03).epsilon(0.001));
    CHECK(variant["resources"][1]["registers"] == 255);
    CHECK(variant["resources"][1]["spill_store_bytes"] == 60);
    CHECK_FALSE(json.contains("host_time"));
}

TEST_CASE("a general problem's report has all of its fields and rates of the pairs it attends to") {
    ProblemResult result = result_of(false);
    result.problem = {.batch = 2,
                      .heads = 8,
                      .heads_kv = 2,
                      .seqlen_q = 100,
                      .seqlen_kv = 100,
                      .head_dim = 64,
                      .head_dim_v = 32,
                      .causal = true,
                      .window_left = 9,
                      .gradient_type = GradientType::fp32,
                      .deterministic = true};
    const double pairs = 10 * 100 - 45;
    const double flops = 2 * 8 * pairs * (6 * 64 + 4 * 32);
    const BenchReport report{.peaks = geforce, .problems = {result}};
    const auto measurement = to_json(report)["measurements"][0];
    CHECK(measurement["attended_pairs"] == pairs);
    CHECK(measurement["flops"] == flops);
    CHECK(measurement["variants"][0]["tflops"].get<double>() ==
          doctest::Approx(tflops(flops, 8.5866)));
    const auto problem = measurement["problem"];
    CHECK(problem["heads_kv"] == 2);
    CHECK(problem["head_dim_v"] == 32);
    CHECK(problem["window_left"] == 9);
    CHECK(problem["window_right"].is_null());
    CHECK(problem["gradient_type"] == "fp32");
    CHECK(problem["deterministic"] == true);
    const std::string table = format_problem(result, geforce);
    for (const char* words :
         {"H=8/2", "d=64/32", "window 9,all", "fp32 gradients", "deterministic"}) {
        CHECK_MESSAGE(contains(table, words), words);
    }
}

TEST_CASE("the JSON of a benchmark has null for a rate against peaks that are not known") {
    BenchReport report;
    report.problems.push_back(result_of(false));
    const nlohmann::ordered_json json = to_json(report);
    CHECK(json["peaks"]["tflops"].is_null());
    const auto& measurement = json["measurements"][0];
    CHECK(measurement["matmul"].is_null());
    CHECK(measurement["lower_bound_compute_ms"].is_null());
    CHECK(measurement["variants"][0]["percent_of_peak"].is_null());
    CHECK(measurement["variants"][0]["percent_of_matmul"].is_null());
}

TEST_CASE("a slowed card's report tells how busy main kernels keep its tensor cores") {
    ProblemResult result = result_of(false);
    // A loop at 200 TFLOP/s, and a main kernel that executes 1.2 TFLOP in 8 ms: 150 TFLOP/s.
    result.tensor_rate = TensorRateResult{.flops = 1e12, .samples = samples_of({5})};
    result.variants.front().main_kernel =
        MainKernelResult{.executed_flops = 1.2e12, .samples = samples_of({8, 7, 9})};
    CHECK(slowed_peak_tflops(*result.tensor_rate) == doctest::Approx(200));
    CHECK(tensor_busy(*result.variants.front().main_kernel, *result.tensor_rate) ==
          doctest::Approx(0.75));

    BenchReport report;
    report.slowed_rate = SlowedRate{.rate = {.device = {"sm_90a", 6.08, "measured"},
                                             .emulated = {"sm_120a", 32, "datasheet"},
                                             .mma_repeats = 5},
                                    .measured_device_clocks = 6.1,
                                    .measured_slowed_clocks = 30.25};
    report.problems.push_back(result);

    const std::string text =
        format_slowed_rate(*report.slowed_rate) + format_slowed_problem(result);
    CAPTURE(text);
    for (const char* part : {"sm_120a", "32 clocks", "5 x 6.08 = 30.4", "30.25", "6.10", "75.0%",
                             "80.0%", "160.06", "8.0000 ms", "5.0000 ms", "200.00"}) {
        CAPTURE(part);
        CHECK(contains(text, part));
    }

    const nlohmann::ordered_json json = to_json(report);
    CHECK(json["emulated_tensor_rate"]["mma_repeats"] == 5);
    CHECK(json["emulated_tensor_rate"]["emulated"]["target"] == "sm_120a");
    CHECK(json["emulated_tensor_rate"]["device"]["clocks_per_product"] == 6.08);
    CHECK(json["emulated_tensor_rate"]["measured_slowed_clocks_per_product"] == 30.25);
    const auto& measurement = json["measurements"][0];
    CHECK(measurement["tensor_rate_loop"]["tflops"].get<double>() == doctest::Approx(200));
    const auto& variant = measurement["variants"][0];
    CHECK(variant["percent_of_slowed_peak"].get<double>() == doctest::Approx(80.03).epsilon(0.001));
    CHECK(variant["main_kernel"]["tensor_busy_percent"].get<double>() == doctest::Approx(75));
    CHECK(variant["main_kernel"]["samples_ms"].size() == 3);
    CHECK(variant["main_kernel"]["executed_flops"] == 1.2e12);
}

TEST_CASE("a report without an emulated tensor rate says nothing of one") {
    BenchReport report;
    report.problems.push_back(result_of(true));
    const nlohmann::ordered_json json = to_json(report);
    CHECK_FALSE(json.contains("emulated_tensor_rate"));
    CHECK_FALSE(json["measurements"][0].contains("tensor_rate_loop"));
    CHECK_FALSE(json["measurements"][0]["variants"][0].contains("main_kernel"));
}

TEST_CASE("host times are told as medians of the calls, in the table and the JSON") {
    BenchReport report;
    report.host_times.push_back({.kernel = "v2",
                                 .problem = published,
                                 .run_microseconds = {9, 5, 100},
                                 .launch_microseconds = {4, 3, 80},
                                 .cold_compile_milliseconds = 312.4});
    const std::string text = format_host_times(report.host_times);
    CAPTURE(text);
    CHECK(contains(text, "9.00 us"));
    CHECK(contains(text, "4.00 us"));
    CHECK(contains(text, "312 ms"));
    const nlohmann::ordered_json json = to_json(report);
    CHECK(json["host_time"][0]["run_median_us"] == 9);
    CHECK(json["host_time"][0]["launches_median_us"] == 4);
    CHECK(json["host_time"][0]["run_us"].size() == 3);
}

TEST_CASE("a host time problem is divided by the tile in queries and keys") {
    for (const TileConfig& config :
         {TileConfig{.block_q = 64, .block_kv = 64}, TileConfig{.block_q = 48, .block_kv = 32}}) {
        const AttentionProblem problem = host_time_problem(config, DataType::bf16);
        CHECK(problem.seqlen_q % config.block_q == 0);
        CHECK(problem.seqlen_kv % config.block_kv == 0);
        CHECK(problem.seqlen_q == problem.seqlen_kv);
    }
}

TEST_CASE("what is written before each repetition is twice the L2 and at least 256 MiB") {
    CHECK(flush_bytes(0) == std::size_t{256} << 20U);
    CHECK(flush_bytes(std::size_t{50} << 20U) == std::size_t{256} << 20U);
    CHECK(flush_bytes(std::size_t{192} << 20U) == std::size_t{384} << 20U);
}

TEST_CASE("a table's columns are aligned by characters, not by bytes") {
    TextTable table({"name", "value"});
    table.add({"8³", "1"});
    table.add({"wide name", "1000000"});
    CHECK(table.text() ==
          "name         value\n"
          "------------------\n"
          "8³               1\n"
          "wide name  1000000\n");
}
