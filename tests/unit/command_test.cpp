// The command line: what is understood, what is refused and how, and exit codes.

#include "command.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>

#include "arguments.hpp"
#include "command_test_support.hpp"
#include "doctor.hpp"
#include "json_file.hpp"
#include "runtime_implementation.hpp"
#include "test_support.hpp"
#include "tuning/search_space.hpp"
#include "version.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::command;
using test::contains;
using test::Environment;
using test::Outcome;

namespace {

const std::string no_driver = "/nonexistent/libcuda.so.1";

/// The command must fail as told, with nothing on its output.
void check_failure(const std::vector<std::string>& arguments, int exit_code,
                   std::initializer_list<std::string_view> fragments) {
    const Outcome outcome = command(arguments);
    CAPTURE(outcome.errors);
    CHECK(outcome.exit_code == exit_code);
    CHECK(outcome.out.empty());
    CHECK(outcome.errors.starts_with("backlight: "));
    for (const std::string_view fragment : fragments) {
        CAPTURE(fragment);
        CHECK(contains(outcome.errors, fragment));
    }
}

}  // namespace

TEST_CASE("a shape is four positive whole numbers between underscores") {
    CHECK(parse_shape("8_16_4096_128") ==
          Shape{.batch = 8, .heads = 16, .seqlen = 4096, .head_dim = 128});
    for (const char* text :
         {"", "8", "8_16_4096", "8_16_4096_128_1", "8_16_4096_128_", "_8_16_4_5", "8_16__128",
          "8x16x4096x128", "0_16_4096_128", "8_-1_4096_128", "8_16_4096_128 ", " 8_16_4096_128",
          "8_16_4096.5_128", "99999999999999999999_1_1_1", "a_b_c_d"}) {
        check_refused(ErrorCode::invalid_argument,
                      {"shape", std::string("'") + text + "'", "four positive whole numbers",
                       "8_16_4096_128"},
                      [&] { parse_shape(text); });
    }
}

TEST_CASE("a tile is four positive whole numbers between commas") {
    const TileConfig config = parse_tile("32,64,8,2");
    CHECK(config == kernel_preset("v3"));
    for (const char* text : {"", "32,64,8", "32,64,8,2,1", "32_64_8_2", "32,64,8,0",
                             "32,64,8,4294967298", "32, 64,8,2"}) {
        check_refused(ErrorCode::invalid_argument,
                      {"tile", std::string("'") + text + "'", "block_q,block_kv,warps,stages"},
                      [&] { parse_tile(text); });
    }
}

TEST_CASE(
    "a tile may name its fields, and what it leaves out is its family's preset or the default") {
    TileConfig wgmma = kernel_preset("wgmma");
    CHECK(parse_tile("family=wgmma") == wgmma);
    wgmma.heads_per_group = 8;
    CHECK(parse_tile("family=wgmma,heads_per_group=8") == wgmma);
    wgmma.stages = 3;
    CHECK(parse_tile("family=wgmma,heads_per_group=8,stages=3") == wgmma);
    CHECK(parse_tile("family=wgmma,stages=3,heads_per_group=8") == wgmma);
    TileConfig resident = kernel_preset("v4");
    CHECK(parse_tile("family=mma_resident") == resident);
    resident.block_q = 64;
    CHECK(parse_tile("family=mma_resident,block_q=64") == resident);
    resident.converts_d_q = true;
    CHECK(parse_tile("family=mma_resident,converts_d_q=true,block_q=64") == resident);
    CHECK(parse_tile("family=mma_resident,converts_d_q=false") == kernel_preset("v4"));
    CHECK(parse_tile("block_q=32,block_kv=64,warps=8,stages=2") == kernel_preset("v3"));
    CHECK(parse_tile("family=mma,block_q=32,stages=2") == TileConfig{.block_q = 32, .stages = 2});
    for (const char* text :
         {"family=hopper", "family=mma_", "family=", "family",
          "heads_per_group=", "heads_per_group=eight", "heads_per_group=8x", "stages=2,,warps=8",
          "tiles=4", "=8", "heads_per_group=99999999999", "family=wgmma heads_per_group=8"}) {
        const std::string quoted = std::string("'") + text + "'";
        check_refused(ErrorCode::invalid_argument, {"tile is " + quoted},
                      [&] { parse_tile(text); });
    }
    check_refused(ErrorCode::invalid_argument,
                  {"name=value", "family (mma, wgmma, mma_resident)", "heads_per_group"},
                  [] { parse_tile("tiles=4"); });
}

TEST_CASE("a configuration is called by its preset, whatever its launch, else by its numbers") {
    for (const KernelPreset& preset : kernel_presets()) {
        TileConfig config = preset.config;
        CHECK(config_name(config) == preset.name);
        config.sequence_lengths = SequenceLengths::compile_time;
        config.programmatic_dependent_launch = false;
        CHECK(config_name(config) == preset.name);
    }
    CHECK(config_name({.block_q = 16, .block_kv = 64, .warps = 4, .stages = 2}) ==
          "tile_16_64_4_2");
    TileConfig wgmma = kernel_preset("wgmma");
    wgmma.heads_per_group = 16;
    CHECK(config_name(wgmma) == "wgmma_64_128_16_2_heads_16");
    wgmma.stages = 3;
    CHECK(config_name(wgmma) == "wgmma_64_128_16_3_heads_16");
    TileConfig resident = kernel_preset("v4");
    resident.heads_per_group = 16;
    CHECK(config_name(resident) == "mma_resident_32_64_4_2_heads_16");
    resident.converts_d_q = true;
    CHECK(config_name(resident) == "mma_resident_32_64_4_2_heads_16_converting");
}

TEST_CASE("the name of every configuration of the search space is taken back") {
    std::size_t names = 0;
    for (const char* target : {"sm_90a", "sm_120a"}) {
        for (const std::int64_t head_dim : {64, 128}) {
            const AttentionProblem problem{
                .seqlen_q = 4096, .seqlen_kv = 4096, .head_dim = head_dim, .causal = true};
            for (const TileConfig& config :
                 tuning::legal_tiles(problem, device::target_by_name(target))) {
                const std::string name = config_name(config);
                CAPTURE(name);
                CHECK(parse_kernel(name).config == config);
                CHECK(parse_kernel(name).name == name);
                CHECK(parse_tile(name) == config);
                ++names;
            }
        }
    }
    CHECK(names > 100);
}

TEST_CASE("what is nearly the name of a configuration is refused with what there is") {
    for (const char* text :
         {"", "v9", "tile_", "tile_32_64_8", "tile_32_64_8_2_1", "tile_32_64_8_0",
          "tile_32_64_8_2_heads_4", "tile_32_64_8_4294967298", "wgmma_64_128_16_2",
          "wgmma_64_128_16_2_heads_", "wgmma_64_128_16_2_heads_4x", "mma_32_64_8_2", "32_64_8_2",
          "mma_resident_32_64_4_2", "default_", "Default"}) {
        check_refused(ErrorCode::unknown_kernel,
                      {std::string("kernel is '") + text + "'",
                       "v1, v2, v3, wgmma, v4, v5, default", "tile_32_64_8_2"},
                      [&] { parse_kernel(text); });
    }
}

TEST_CASE("default is the heuristic's configuration of each problem, launched as it is told") {
    NamedConfig named = parse_kernel("default");
    REQUIRE(named.is_default());
    named.config.sequence_lengths = SequenceLengths::compile_time;
    named.config.programmatic_dependent_launch = false;
    for (const char* name : {"sm_90a", "sm_120a"}) {
        const device::Target target = device::target_by_name(name);
        for (const std::int64_t seqlen : {160, 192, 4096, 8192}) {
            for (const std::int64_t head_dim : {64, 128}) {
                const AttentionProblem problem{
                    .seqlen_q = seqlen, .seqlen_kv = seqlen, .head_dim = head_dim};
                TileConfig config = default_config(problem, target);
                CHECK(config_for(parse_kernel("default"), problem, target) == config);
                CHECK(table_name("default", config) == "default (" + config_name(config) + ")");
                config.sequence_lengths = SequenceLengths::compile_time;
                config.programmatic_dependent_launch = false;
                CHECK(config_for(named, problem, target) == config);
                CHECK(config_for(parse_kernel("v2"), problem, target) == kernel_preset("v2"));
            }
        }
    }
    CHECK(table_name("v2", kernel_preset("v2")) == "v2");
}

TEST_CASE("configurations are kernels by name, then tiles, or all presets and what plans choose") {
    const auto all = named_configs({}, {});
    REQUIRE(all.size() == kernel_presets().size() + 1);
    CHECK(all.front().name == kernel_presets().front().name);
    CHECK(all.back().is_default());
    const auto chosen = named_configs({"v2"}, {"16,64,4,2", "32,64,8,2"});
    REQUIRE(chosen.size() == 3);
    CHECK(chosen[0].config == kernel_preset("v2"));
    CHECK(chosen[1].name == "tile_16_64_4_2");
    CHECK(chosen[2].name == "v3");
    check_refused(ErrorCode::unknown_kernel, {"'v9'"}, [] { named_configs({"v9"}, {}); });
    check_refused(ErrorCode::invalid_argument, {"dtype", "'fp8'", "bf16 or fp16"},
                  [] { parse_dtype("fp8"); });
}

TEST_CASE("--version tells the version and the git revision, --help every subcommand") {
    const Outcome told = command({"--version"});
    CHECK(told.exit_code == exit_success);
    CHECK(contains(told.out, version()));
    CHECK(contains(told.out, git_revision()));
    const Outcome help = command({"--help"});
    CHECK(help.exit_code == exit_success);
    for (const char* subcommand :
         {"bench", "tune", "verify", "run", "inspect", "prebuild", "cache", "doctor"}) {
        CAPTURE(subcommand);
        CHECK(contains(help.out, subcommand));
        CHECK(command({subcommand, "--help"}).exit_code == exit_success);
    }
}

TEST_CASE("a command line that is not understood is a usage error with exit code 2") {
    check_failure({}, exit_usage, {"usage", "subcommand"});
    check_failure({"frobnicate"}, exit_usage, {"usage", "frobnicate"});
    check_failure({"bench", "--frobnicate"}, exit_usage, {"usage", "--frobnicate"});
    check_failure({"bench", "--repeats", "many"}, exit_usage, {"usage", "many"});
    check_failure({"bench", "--lengths", ""}, exit_usage, {"usage", "--lengths", "empty"});
    check_failure({"run", "--in", "file"}, exit_usage, {"usage", "--out"});
}

TEST_CASE(
    "a refused argument of bench names the option, its value and the rule, with exit code 1") {
    check_failure({"bench", "--direction", "forward"}, exit_failure,
                  {"invalid_argument", "direction is 'forward'", "backward"});
    check_failure({"bench", "--regime", "warm"}, exit_failure,
                  {"invalid_argument", "regime is 'warm'", "cool or hot"});
    check_failure({"bench", "--shape", "8_16"}, exit_failure, {"invalid_argument", "'8_16'"});
    check_failure({"bench", "--kernel", "v9"}, exit_failure, {"unknown_kernel", "'v9'"});
    check_failure({"bench", "--tile", "1,2"}, exit_failure, {"invalid_argument", "'1,2'"});
    check_failure({"bench", "--dtype", "fp8"}, exit_failure, {"invalid_argument", "'fp8'"});
    check_failure({"bench", "--layout", "sbhd"}, exit_failure, {"invalid_argument", "sbhd"});
    for (const char* layout : {"foo", "packed_qkv", "padded", "broadcast"}) {
        check_failure({"run", "--in", "a", "--out", "b", "--layout", layout}, exit_failure,
                      {"invalid_argument", fmt::format("layout is \"{}\"", layout),
                       "it must be one of bhsd, bshd\n"});
    }
    check_failure({"bench", "--repeats", "0"}, exit_failure, {"invalid_argument", "repeats is 0"});
    check_failure({"bench", "--lengths", "128", "--seqlen-kv", "5"}, exit_failure,
                  {"invalid_argument", "seqlen-kv is '5'", "left out with --lengths"});
    check_failure({"bench", "--peak-tflops", "0"}, exit_failure,
                  {"invalid_argument", "peak-tflops is 0"});
    check_failure({"bench", "--json", "/nonexistent/report.json"}, exit_failure,
                  {"file_error", "/nonexistent/report.json"});
    check_failure({"verify", "--repeats", "0"}, exit_failure, {"invalid_argument", "repeats"});
    check_failure({"verify", "--repeats", "1", "--deterministic"}, exit_failure,
                  {"invalid_argument", "repeats is '1'", "2 or more with --deterministic"});
    // Understood: what is refused is the kernel, before any device is opened.
    check_failure({"verify", "--repeats", "2", "--deterministic", "--kernel", "v9"}, exit_failure,
                  {"unknown_kernel", "'v9'"});
    check_failure({"inspect", "--show", "ptx"}, exit_failure, {"invalid_argument", "'ptx'"});
}

TEST_CASE("the device is a number or emulated and anything else is refused by name") {
    for (const char* text : {"gpu", "", "1x", " 1", "Emulated", "99999999999"}) {
        CAPTURE(text);
        check_failure({"verify", "--device", text}, exit_failure,
                      {"invalid_argument", "device is '" + std::string(text) + "'",
                       "number of a CUDA device", "emulated"});
    }
    check_failure({"--device", "gpu", "doctor"}, exit_failure, {"device is 'gpu'"});
}

TEST_CASE("bench and inspect refuse the emulated device and say why") {
    check_failure({"bench", "--device", "emulated"}, exit_failure,
                  {"invalid_argument", "device is 'emulated'", "CUDA device", "how long"});
    check_failure({"--device", "emulated", "inspect"}, exit_failure,
                  {"invalid_argument", "device is 'emulated'", "--target", "NVRTC"});
}

TEST_CASE("options of the emulated device's schedule are refused with a CUDA device") {
    check_failure({"verify", "--seed", "7"}, exit_failure,
                  {"invalid_argument", "seed is '7'", "CUDA device", "--device emulated"});
    check_failure({"verify", "--device", "1", "--grid-order", "random"}, exit_failure,
                  {"invalid_argument", "grid-order is 'random'", "--device emulated"});
    check_failure({"run", "--in", "a", "--out", "b", "--seed", "0"}, exit_failure,
                  {"invalid_argument", "seed is '0'", "CUDA device"});
    check_failure({"run", "--in", "a", "--out", "b", "--grid-order", "ascending"}, exit_failure,
                  {"invalid_argument", "grid-order is 'ascending'", "CUDA device"});
    check_failure({"verify", "--device", "emulated", "--grid-order", "sideways"}, exit_failure,
                  {"invalid_argument", "grid-order is 'sideways'", "ascending, descending"});
    for (const char* seed : {"-1", "18446744073709551616", "1e3", "7x", ""}) {
        check_failure({"verify", "--device", "emulated", "--seed", seed}, exit_failure,
                      {"invalid_argument", fmt::format("seed is '{}'", seed),
                       "from 0 to 18446744073709551615"});
    }
    // Understood: what is refused is the kernel, before any device is opened.
    check_failure({"verify", "--device", "emulated", "--seed", "18446744073709551615",
                   "--grid-order", "descending", "--kernel", "v9"},
                  exit_failure, {"unknown_kernel", "'v9'"});
}

TEST_CASE("options that contradict the grid of verify are refused by name and rule") {
    check_failure({"verify", "--grid-size", "small"}, exit_failure,
                  {"invalid_argument", "grid-size is 'small'", "left out without --grid"});
    check_failure({"verify", "--grid", "--grid-size", "huge"}, exit_failure,
                  {"invalid_argument", "grid-size is 'huge'", "small or large"});
    for (const char* option : {"--quick", "--against-emulated", "--deterministic"}) {
        check_failure({"verify", "--grid", option}, exit_failure,
                      {"invalid_argument", "grid is 'given'", "--quick", "features"});
    }
    check_failure({"verify", "--device", "emulated", "--grid", "--head-dim", "16"}, exit_failure,
                  {"invalid_argument", "head-dim is 16", "small grid"});
}

TEST_CASE("a shape that a kernel does not take is refused before anything is launched") {
    fault::FakeDriver& driver = test::fresh_driver();
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    check_failure({"bench", "--shape", "1_1_100_128", "--kernel", "v2"}, exit_failure,
                  {"unsupported", "100", "64"});
    check_failure({"bench", "--shape", "1_1_128_264"}, exit_failure,
                  {"unsupported", "head_dim", "264"});
    check_failure({"--device", "7", "bench"}, exit_failure, {"device_not_found", "7"});
    check_failure({"bench", "--device", "7"}, exit_failure, {"device_not_found", "7"});
    CHECK(driver.fake_launch_count() == 0);
}

TEST_CASE("bench interleaves kernels, every other time backwards, each after a flush and a spin") {
    const test::TemporaryDirectory cubins;
    const Environment cache_path("BACKLIGHT_CACHE_PATH", cubins.path().string());
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    fault::FakeDriver& driver = test::fresh_driver();
    const Outcome outcome =
        command({"bench", "--shape", "1_1_128_64", "--kernel", "v2", "--kernel", "v3", "--repeats",
                 "4", "--regime", "hot", "--no-matmul", "--json", "-"});
    CAPTURE(outcome.errors);
    REQUIRE(outcome.exit_code == exit_success);
    const auto json = nlohmann::json::parse(outcome.out);
    const auto& variants = json["measurements"][0]["variants"];
    REQUIRE(variants.size() == 2);
    CHECK(variants[0]["samples_ms"].size() == 4);
    CHECK(variants[1]["samples_ms"].size() == 4);

    // v2 and v3 differ in their shared memory; a timed chain is spin, delta, main, convert.
    const auto launches = driver.launches();
    std::string order;
    for (std::size_t i = 2; i < launches.size(); ++i) {
        if (std::string_view(launches[i].kernel) == "attention_backward_mma" &&
            std::string_view(launches[i - 2].kernel) == "spin") {
            const auto v2_bytes = shared_memory_bytes(kernel_preset("v2"), 64);
            order += launches[i].shared_bytes == v2_bytes ? '2' : '3';
        }
    }
    CHECK(order == "23322332");
}

TEST_CASE("a tensor rate that cannot be emulated is refused before any device is opened") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    const auto refused = [](std::vector<std::string> more,
                            std::initializer_list<std::string_view> fragments) {
        std::vector<std::string> arguments = {"bench", "--emulate-tensor-rate"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        check_failure(arguments, exit_failure, fragments);
    };
    refused({"rtx5090"}, {"invalid_argument", "'rtx5090'", "sm_120a"});
    refused({"sm_100"}, {"unsupported", "sm_100a", "not known", "sm_90, sm_120"});
    refused({"sm_120", "--kernel", "v4", "--kernel", "wgmma"}, {"unsupported", "kernel wgmma"});
    refused({"sm_120", "--host-time"}, {"invalid_argument", "sm_120", "host-time"});
    refused({"sm_120", "--profile", "v3"}, {"invalid_argument", "profile"});
    refused({"sm_120", "--plot", "times.svg"}, {"invalid_argument", "plot"});
    refused({"sm_120", "--peak-tflops", "209"}, {"invalid_argument", "peak-tflops is 209"});
    refused({"sm_120"}, {"driver_not_found"});
}

TEST_CASE("a reproduction refuses a kernel that is given twice before it opens a device") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    check_failure({"bench", "--reproduce", "article", "--no-peers", "--kernel", "v2", "--kernel",
                   "v3", "--kernel", "v2"},
                  exit_failure, {"invalid_argument", "kernel is 'v2' twice"});
}

TEST_CASE("a command that is refused leaves no empty file where its JSON would have come") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    const test::TemporaryDirectory folder;
    const std::string fresh = (folder.path() / "fresh.json").string();
    check_failure({"bench", "--json", fresh}, exit_failure, {"driver_not_found"});
    CHECK_FALSE(std::filesystem::exists(fresh));
    check_failure({"bench", "--reproduce", "article", "--no-peers", "--json", fresh}, exit_failure,
                  {"driver_not_found"});
    CHECK_FALSE(std::filesystem::exists(fresh));

    const std::filesystem::path earlier = folder.path() / "earlier.json";
    std::ofstream(earlier) << "{}";
    check_failure({"bench", "--json", earlier.string()}, exit_failure, {"driver_not_found"});
    CHECK(std::filesystem::file_size(earlier) == 2);

    const std::filesystem::path link = folder.path() / "link.json";
    std::filesystem::create_symlink(folder.path() / "nowhere.json", link);
    check_failure({"bench", "--json", link.string()}, exit_failure, {"driver_not_found"});
    CHECK(std::filesystem::is_symlink(link));
}

TEST_CASE("no arguments of an inspection end the command by a signal") {
    for (const char* head_dim : {"0", "-4", "4611686018427387904"}) {
        check_failure({"inspect", "--kernel", "default", "--causal", "--target", "sm_120a",
                       "--head-dim", head_dim},
                      exit_failure, {"head_dim is"});
    }
    check_failure({"inspect", "--kernel", "default", "--causal", "--target", "sm_120a", "--seqlen",
                   "4611686018427387904"},
                  exit_failure, {"seqlen_q is"});
}

TEST_CASE("at an emulated tensor rate the main kernel is timed between the others of its chain") {
    const test::TemporaryDirectory cubins;
    const Environment cache_path("BACKLIGHT_CACHE_PATH", cubins.path().string());
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    fault::FakeDriver& driver = test::fresh_driver();
    const Outcome outcome =
        command({"bench", "--emulate-tensor-rate", "sm_120", "--shape", "1_1_128_64", "--kernel",
                 "v4", "--repeats", "2", "--regime", "hot", "--json", "-"});
    CAPTURE(outcome.errors);
    REQUIRE(outcome.exit_code == exit_success);
    const auto json = nlohmann::json::parse(outcome.out);
    CHECK(json["emulated_tensor_rate"]["mma_repeats"] == 5);
    CHECK(json["peaks"]["tflops"].is_null());
    CHECK(json["measurements"][0]["variants"][0]["main_kernel"]["samples_ms"].size() == 2);
    CHECK(json["measurements"][0]["tensor_rate_loop"]["samples_ms"].size() == 2);

    // Behind each spin: a chain whose kernels start early, one whose kernels do not, the loop.
    std::string order;
    for (const auto& launch : driver.launches()) {
        const std::string_view kernel = launch.kernel;
        const bool early = launch.programmatic_dependent_launch;
        order += kernel == "spin"                              ? " "
                 : kernel == "tensor_rate"                     ? "T"
                 : kernel == "attention_backward_delta"        ? "d"
                 : kernel == "attention_backward_mma_resident" ? (early ? "M" : "m")
                 : kernel == "attention_backward_convert"      ? (early ? "C" : "c")
                                                               : "";
    }
    CHECK(order.ends_with("  dMC dmc T T dmc dMC"));

    driver.fake_set_compute_capability(12, 0);
    check_failure({"bench", "--emulate-tensor-rate", "sm_120", "--kernel", "v4"}, exit_failure,
                  {"unsupported", "sm_120a on a device of sm_120a"});
}

TEST_CASE("without a driver, the subcommands that need one say so with exit code 1") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    check_failure({"bench"}, exit_failure, {"driver_not_found", "/nonexistent/libcuda.so.1"});
    check_failure({"verify"}, exit_failure, {"driver_not_found", "--device emulated"});
}

TEST_CASE("inspect without a GPU and without a target takes sm_90a and sm_120a") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    const Outcome outcome =
        command({"inspect", "--kernel", "v2", "--head-dim", "64", "--json", "-"});
    CAPTURE(outcome.errors);
    REQUIRE(outcome.exit_code == exit_success);
    const auto json = nlohmann::json::parse(outcome.out);
    REQUIRE(json.size() == 2);
    CHECK(json[0]["target"] == "sm_90a");
    CHECK(json[1]["target"] == "sm_120a");
}

TEST_CASE("inspect without a target takes the target of the GPU") {
    test::fresh_driver().fake_set_compute_capability(12, 0);
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    const Outcome outcome =
        command({"inspect", "--kernel", "v2", "--head-dim", "64", "--json", "-"});
    CAPTURE(outcome.errors);
    REQUIRE(outcome.exit_code == exit_success);
    CHECK(nlohmann::json::parse(outcome.out)["target"] == "sm_120a");
}

TEST_CASE(
    "doctor says what is missing and what to do, and its exit code that nothing can be done") {
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    const Outcome compiles = command({"doctor", "--json", "-"});
    const Environment nvrtc_path("BACKLIGHT_NVRTC_PATH", "/nonexistent/libnvrtc.so");
    const Outcome nothing = command({"doctor"});

    CHECK(compiles.exit_code == doctor_can_compile);
    const auto json = nlohmann::json::parse(compiles.out);
    CHECK(json["can_compile"] == true);
    CHECK(json["can_run"] == false);
    CHECK(json["driver"]["ok"] == false);
    CHECK(contains(json["driver"]["problem"].get<std::string>(), "BACKLIGHT_DRIVER_PATH"));
    CHECK(json["nvrtc"]["ok"] == true);
    CHECK_FALSE(json["nvrtc"]["version"].get<std::string>().empty());

    CHECK(nothing.exit_code == doctor_can_do_neither);
    CHECK(contains(nothing.out, "/nonexistent/libnvrtc.so"));
    CHECK(contains(nothing.out, "neither compiled nor run"));
}

TEST_CASE("doctor tells which compiler the emulated device has or that it has none") {
    const test::TemporaryDirectory directory;
    const auto compiler = directory.path() / "compiler";
    std::ofstream(compiler) << "#!/bin/sh\necho some compiler 1.2\n";
    std::filesystem::permissions(compiler, std::filesystem::perms::owner_all);
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", no_driver);
    {
        const Environment asked("BACKLIGHT_CXX", compiler.string());
        const Outcome found = command({"doctor"});
        CHECK(found.exit_code == doctor_can_compile);
        CHECK(
            contains(found.out, "emulated ok       " + compiler.string() + ", some compiler 1.2"));
        CHECK(contains(found.out, "--device emulated"));
        CHECK(nlohmann::json::parse(command({"doctor", "--json", "-"}).out)["can_emulate"] == true);
    }
    const Environment asked("BACKLIGHT_CXX", "/nonexistent/compiler");
    const Outcome missing = command({"doctor"});
    CHECK(missing.exit_code == doctor_can_compile);
    CHECK(contains(missing.out, "emulated missing"));
    CHECK(contains(missing.out, "BACKLIGHT_CXX"));
    CHECK_FALSE(contains(missing.out, "--device emulated"));
    CHECK(nlohmann::json::parse(command({"doctor", "--json", "-"}).out)["can_emulate"] == false);
}

TEST_CASE("doctor tells usable GPUs from those without TMA") {
    fault::FakeDriver& driver = test::fresh_driver();
    driver.fake_set_device_count(2);
    driver.fake_set_compute_capability_of(1, 8, 9);
    const Environment driver_path("BACKLIGHT_DRIVER_PATH", BACKLIGHT_FAKE_DRIVER_PATH);
    const Diagnosis diagnosis = diagnose();
    driver.fake_set_compute_capability(8, 9);
    const Diagnosis old = diagnose();
    driver.fake_set_device_count(0);
    const Diagnosis none = diagnose();

    REQUIRE(diagnosis.gpus.size() == 2);
    CHECK(diagnosis.gpus[0].usable);
    CHECK(diagnosis.gpus[0].target == "sm_90a");
    CHECK_FALSE(diagnosis.gpus[1].usable);
    CHECK(contains(diagnosis.gpus[1].problem, "TMA"));
    // A card that cannot be used is told by name all the same.
    CHECK_FALSE(diagnosis.gpus[1].name.empty());
    CHECK(diagnosis.gpus[1].compute_capability == "8.9");
    CHECK(exit_code(diagnosis) == doctor_can_run);
    CHECK(contains(format_diagnosis(diagnosis), "can be compiled and run"));
    CHECK(exit_code(old) == doctor_can_compile);
    CHECK(none.gpus.empty());
    CHECK(contains(none.gpu_problem, "CUDA_VISIBLE_DEVICES"));
}

TEST_CASE("the cache's directory is good where it can be made, and is not made by looking") {
    const test::TemporaryDirectory directory;
    const auto there = diagnose_cache(directory.path().string());
    CHECK(there.good);
    CHECK(there.version == "there");
    const auto to_make = directory.path() / "a" / "b";
    CHECK(diagnose_cache(to_make.string()).good);
    CHECK_FALSE(std::filesystem::exists(directory.path() / "a"));

    std::ofstream(directory.path() / "file") << "in the way";
    const Finding blocked = diagnose_cache((directory.path() / "file" / "cache").string());
    CHECK_FALSE(blocked.good);
    CHECK(contains(blocked.problem, "no directory"));
    CHECK(contains(diagnose_cache("").problem, "BACKLIGHT_CACHE_PATH"));
}

TEST_CASE("JSON goes to the file, or to the output for -, and a file that cannot be is refused") {
    const test::TemporaryDirectory directory;
    const auto path = directory.path() / "report.json";
    std::ostringstream out;
    write_json(path.string(), {{"key", 1}}, out);
    CHECK(out.str().empty());
    CHECK(nlohmann::json::parse(std::ifstream(path))["key"] == 1);
    write_json("-", {{"key", 2}}, out);
    CHECK(nlohmann::json::parse(out.str())["key"] == 2);
    check_refused(ErrorCode::file_error, {"json", "/nonexistent/report.json"}, [&] {
        write_json("/nonexistent/report.json", {{"key", 3}}, out);
    });
}
