// Which kernels a prebuild is about: manifests, options, the configurations that are chosen.

#include "manifest.hpp"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>

#include "configuration_choice.hpp"
#include "kernel_selection.hpp"
#include "runtime_implementation.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;

namespace {

std::vector<WantedProblem> parsed(const std::string& text) {
    return parse_manifest(
        nlohmann::json::parse(text), "problems.json",
        {.configs = {{"v3", kernel_preset("v3")}}, .targets = {device::target_by_name("sm_120a")}});
}

SelectionOptions one_problem() {
    SelectionOptions options;
    options.targets = {"sm_90a"};
    options.head_dims = {64};
    options.causal = true;
    options.dtypes = {DataType::bf16};
    options.kernels = {"v3"};
    return options;
}

compiler::KernelStore memory_store() {
    return compiler::KernelStore({.nvrtc_path = test::real_nvrtc_path()});
}

}  // namespace

TEST_CASE("a manifest entry says its problem and what it leaves out comes from the command line") {
    const auto problems = parsed(R"([
        {"head_dim": 64},
        {"batch": 8, "heads": 16, "seqlen": 4096, "head_dim": 128, "causal": true, "dtype": "fp16",
         "softmax_scale": 0.1, "targets": ["sm_90a", "sm_120a"],
         "configurations": ["v2", {"block_q": 16, "block_kv": 64, "warps": 4, "stages": 2,
                                   "sequence_lengths": "compile_time"}]},
        {"seqlen_q": 128, "seqlen_kv": 256, "head_dim": 64}])");
    REQUIRE(problems.size() == 3);
    CHECK(problems[0].problem == AttentionProblem{.head_dim = 64});
    CHECK(problems[0].configs.at(0).name == "v3");
    CHECK(problems[0].targets.at(0).name == "sm_120a");

    CHECK(problems[1].problem == AttentionProblem{.batch = 8,
                                                  .heads = 16,
                                                  .seqlen_q = 4096,
                                                  .seqlen_kv = 4096,
                                                  .head_dim = 128,
                                                  .causal = true,
                                                  .dtype = DataType::fp16,
                                                  .softmax_scale = 0.1F});
    REQUIRE(problems[1].configs.size() == 2);
    CHECK(problems[1].configs[0].config == kernel_preset("v2"));
    CHECK(problems[1].configs[1].name == "tile_16_64_4_2");
    CHECK(problems[1].configs[1].config.sequence_lengths == SequenceLengths::compile_time);
    CHECK(problems[1].targets.size() == 2);
    CHECK(problems[2].problem.seqlen_kv == 256);
}

TEST_CASE("a manifest entry may give every field of its problem and null is as left out") {
    const auto problems = parsed(R"([
        {"head_dim": 192, "head_dim_v": 128, "heads": 8, "heads_kv": 2, "causal": true,
         "mask_alignment": "top_left", "window_left": 1024, "window_right": 0,
         "gradient_type": "fp32", "accumulate_gradients": true, "deterministic": true},
        {"head_dim": 64, "heads_kv": null, "head_dim_v": null, "window_left": null,
         "window_right": null}])");
    REQUIRE(problems.size() == 2);
    CHECK(problems[0].problem == AttentionProblem{.heads = 8,
                                                  .heads_kv = 2,
                                                  .head_dim = 192,
                                                  .head_dim_v = 128,
                                                  .causal = true,
                                                  .mask_alignment = MaskAlignment::top_left,
                                                  .window_left = 1024,
                                                  .window_right = 0,
                                                  .gradient_type = GradientType::fp32,
                                                  .accumulate_gradients = true,
                                                  .deterministic = true});
    CHECK(problems[1].problem == AttentionProblem{.head_dim = 64});
}

TEST_CASE("of a configuration of wgmma or mma_resident a manifest need give few fields") {
    const auto problems = parsed(R"([{"head_dim": 64, "configurations": [
        {"family": "wgmma"},
        {"family": "wgmma", "heads_per_group": 8, "stages": 3},
        {"family": "mma", "block_q": 32, "block_kv": 64, "warps": 8, "stages": 2},
        {"family": "mma_resident", "block_q": 64}]}])");
    const auto& configs = problems.at(0).configs;
    REQUIRE(configs.size() == 4);
    CHECK(configs[0].name == "wgmma");
    CHECK(configs[0].config == kernel_preset("wgmma"));
    TileConfig deeper = kernel_preset("wgmma");
    deeper.heads_per_group = 8;
    deeper.stages = 3;
    CHECK(configs[1].config == deeper);
    CHECK(configs[2].config == kernel_preset("v3"));
    TileConfig tall = kernel_preset("v4");
    tall.block_q = 64;
    CHECK(configs[3].config == tall);
}

TEST_CASE("what is wrong in a manifest is told by entry and field and value and rule") {
    struct Case {
        const char* text;
        std::initializer_list<std::string_view> fragments;
        ErrorCode code = ErrorCode::invalid_argument;
    };
    const Case cases[] = {
        {R"({"head_dim": 64})", {"problems.json", "list of problems"}},
        {R"([])", {"problems.json", "list of problems, one at least"}},
        {R"([7])", {"entry 1 is 7", "object"}},
        {R"([{"head_dim": 64}, {"headdim": 64}])", {"entry 2", "'headdim'", "head_dim"}},
        {R"([{}])", {"entry 1", "head_dim is missing", "whole number"}},
        {R"([{"head_dim": "64"}])", {"entry 1", "head_dim is \"64\""}},
        {R"([{"head_dim": 64.5}])", {"head_dim is 64.5"}},
        {R"([{"head_dim": 18446744073709551615}])", {"head_dim is 18446744073709551615"}},
        {R"([{"head_dim": 64, "seqlen": 0}])", {"seqlen is 0"}},
        {R"([{"head_dim": 64, "seqlen_q": 64}])", {"seqlen_kv is missing"}},
        {R"([{"head_dim": 64, "seqlen": 64, "seqlen_q": 64}])", {"seqlen is 64", "left out"}},
        {R"([{"head_dim": 64, "causal": 1}])", {"causal is 1", "true or false"}},
        {R"([{"head_dim": 64, "dtype": "fp8"}])", {"entry 1", "'fp8'", "bf16 or fp16"}},
        {R"([{"head_dim": 64, "dtype": 16}])", {"dtype is 16"}},
        {R"([{"head_dim": 64, "softmax_scale": "small"}])", {"softmax_scale is \"small\""}},
        {R"([{"head_dim": 64, "heads_kv": 0}])", {"heads_kv is 0", "from 1"}},
        {R"([{"head_dim": 64, "window_left": -1}])", {"window_left is -1", "from 0"}},
        {R"([{"head_dim": 64, "mask_alignment": "left"}])",
         {"entry 1: mask_alignment is \"left\"", "top_left or bottom_right"}},
        {R"([{"head_dim": 64, "gradient_type": "fp16"}])",
         {"entry 1: gradient_type is \"fp16\"", "input or fp32"}},
        {R"([{"head_dim": 64, "gradient_type": 32}])", {"gradient_type is 32", "input or fp32"}},
        {R"([{"head_dim": 64, "deterministic": 1}])", {"deterministic is 1", "true or false"}},
        {R"([{"head_dim": 64, "targets": []}])", {"targets is []", "list"}},
        {R"([{"head_dim": 64, "targets": ["sm_89"]}])", {"entry 1", "sm_89"}},
        {R"([{"head_dim": 64, "configurations": "v3"}])", {"configurations is \"v3\"", "list"}},
        {R"([{"head_dim": 64, "configurations": ["v3", {"block_q": 64}]}])",
         {"entry 1: configuration 2", "block_kv is missing"}},
        {R"([{"head_dim": 64, "configurations": [{"blockq": 64}]}])", {"'blockq'"}},
        {R"([{"head_dim": 64, "configurations": [{"family": "ptx"}]}])",
         {"family is \"ptx\"", "\"mma\" or \"wgmma\" or \"mma_resident\""}},
        {R"([{"head_dim": 64, "configurations": [{"family": "wgmma", "heads_per_group": 0}]}])",
         {"entry 1: configuration 1", "heads_per_group is 0", "whole number"}},
        {R"([{"head_dim": 64, "configurations": [{"family": "mma", "stages": 2}]}])",
         {"block_q is missing"}},
        {R"([{"head_dim": 64, "configurations": ["v9"]}])",
         {"entry 1", "v9"},
         ErrorCode::unknown_kernel},
    };
    for (const Case& wrong : cases) {
        CAPTURE(wrong.text);
        check_refused(wrong.code, wrong.fragments, [&] { parsed(wrong.text); });
    }
}

TEST_CASE("a manifest that cannot be read or is not JSON is refused by its path") {
    const test::TemporaryDirectory directory;
    const std::string path = (directory.path() / "problems.json").string();
    check_refused(ErrorCode::file_error, {path}, [&] { read_manifest(path, {}); });
    std::ofstream(path) << "[{\"head_dim\": 64,";
    check_refused(ErrorCode::invalid_argument, {path, "not JSON"},
                  [&] { read_manifest(path, {}); });
    check_refused(ErrorCode::file_error, {directory.path().string()},
                  [&] { read_manifest(directory.path().string(), {}); });
}

TEST_CASE("what JSON leaves open is refused in a manifest by its path") {
    const test::TemporaryDirectory directory;
    const std::string path = (directory.path() / "problems.json").string();
    const auto refused = [&](const std::string& text, std::string_view reason) {
        std::ofstream(path) << text;
        check_refused(ErrorCode::invalid_argument, {path, reason},
                      [&] { read_manifest(path, {}); });
    };
    refused(R"([{"head_dim": 1e999}])", "overflow");
    refused(R"([{"head_dim": 64, "head_dim": 128}])", "the field \"head_dim\" twice");
    refused(R"([{"head_dim": 64, "configurations": [{"warps": 4, "warps": 8}]}])",
            "\"warps\" twice");
    constexpr std::size_t deep = 1'000'000;
    refused(std::string(deep, '[') + std::string(deep, ']'), "nested");
    std::ofstream(path) << R"([{"head_dim": 64}, {"head_dim": 64, "configurations": [
        {"block_q": 64, "block_kv": 64, "warps": 8, "stages": 1},
        {"block_q": 32, "block_kv": 64, "warps": 8, "stages": 2}]}])";
    CHECK(read_manifest(path, {}).size() == 2);
}

TEST_CASE("a problem is made for every mask and type and target that the options name") {
    SelectionOptions options;
    options.head_dims = {64};
    CHECK(wanted_problems(options).size() == 4);
    CHECK(wanted_problems(options)[0].targets.size() == 2);
    options.full = true;
    options.dtypes = {DataType::fp16};
    options.shapes = {"2_3_128_64"};
    const auto problems = wanted_problems(options);
    REQUIRE(problems.size() == 2);
    CHECK(problems[0].problem.batch == 2);
    CHECK(problems[0].problem.seqlen_q == 128);
    CHECK(problems[1].problem.seqlen_q == 0);
    CHECK_FALSE(problems[1].problem.causal);
    // Where nothing tells a problem, the head dimensions that the kernels take.
    CHECK(wanted_problems({}).size() == 8);
}

TEST_CASE("default stands for what the library chooses, beside what else is named") {
    auto store = memory_store();
    const auto configs = [&](std::vector<std::string> kernels) {
        SelectionOptions options = one_problem();
        options.head_dims.clear();
        options.shapes = {"1_1_2048_64"};
        options.kernels = std::move(kernels);
        std::vector<TileConfig> chosen;
        for (const SelectedChain& chain : select_chains(options, store)) {
            chosen.push_back(chain.config.config);
            CHECK(chain.config.name == config_name(chain.config.config));
        }
        return chosen;
    };
    const auto without = configs({});
    CHECK(configs({"default"}) == without);
    auto with_v2 = without;
    with_v2.insert(with_v2.begin(), kernel_preset("v2"));
    CHECK(configs({"default", "v2"}) == with_v2);
    CHECK(configs({config_name(without.front())}) == std::vector{without.front()});
    const auto problems = parsed(R"([{"head_dim": 64, "configurations": [
        "default", "wgmma_64_128_16_3_heads_4"]}])");
    CHECK(problems.at(0).configs.at(0).is_default());
    CHECK(problems.at(0).configs.at(1).config.stages == 3);
}

TEST_CASE("what the library refuses is told with where the problem comes from") {
    auto store = memory_store();
    SelectionOptions options = one_problem();
    options.bake_seqlen = true;
    check_refused(ErrorCode::invalid_argument, {"head-dim 64, v3, sm_90a", "seqlen is not given"},
                  [&] { select_chains(options, store); });
    options.head_dims.clear();
    options.shapes = {"1_1_100_64"};
    check_refused(ErrorCode::unsupported, {"shape 1_1_100_64, v3, sm_90a", "100"},
                  [&] { select_chains(options, store); });
}

TEST_CASE("features of the command line are those of its shapes and head dimensions") {
    SelectionOptions options = one_problem();
    options.shapes = {"2_8_128_64"};
    options.features = {
        .heads_kv = 2, .seqlen_kv = 192, .window_left = 64, .gradient_type = GradientType::fp32};
    auto store = memory_store();
    options.kernels = {"v4"};
    options.head_dims.clear();
    const auto chains = select_chains(options, store);
    REQUIRE(chains.size() == 1);
    CHECK(chains[0].problem == AttentionProblem{.batch = 2,
                                                .heads = 8,
                                                .heads_kv = 2,
                                                .seqlen_q = 128,
                                                .seqlen_kv = 192,
                                                .head_dim = 64,
                                                .causal = true,
                                                .window_left = 64,
                                                .gradient_type = GradientType::fp32});
    const auto kernels =
        distinct_kernels(chains, [&](const auto& request) { return store.key_of(request); });
    REQUIRE(kernels.size() == 3);
    CHECK(kernels[1].serves ==
          "bf16 head_dim=64 causal window 64,all bottom_right grouped heads fp32 gradients v4");

    // Kernels of every length of queries.
    options.shapes.clear();
    options.head_dims = {64};
    options.features.heads = 4;
    const auto lengthless = select_chains(options, store);
    REQUIRE(lengthless.size() == 1);
    CHECK(lengthless[0].problem.heads == 4);
    CHECK(lengthless[0].problem.seqlen_q == 4096);
    CHECK(lengthless[0].problem.seqlen_kv == 192);
    CHECK(lengthless[0].kernels[1].specialisation == chains[0].kernels[1].specialisation);
}

TEST_CASE("kernels for packed sequences of any length are those of sequences of one length") {
    auto store = memory_store();
    SelectionOptions options = one_problem();
    options.features.packed = true;
    options.kernels = {"v4", "wgmma"};
    const auto any_length = select_chains(options, store);
    REQUIRE(any_length.size() == 2);
    CHECK(any_length[0].problem.packed ==
          PackedSequences{.total_q = any_length[0].problem.seqlen_q,
                          .total_kv = any_length[0].problem.seqlen_kv});
    options.head_dims.clear();
    options.shapes = {"3_1_4096_64"};
    const auto of_shape = select_chains(options, store);
    REQUIRE(of_shape.size() == 2);
    CHECK(of_shape[0].problem.packed == PackedSequences{.total_q = 12288, .total_kv = 12288});
    for (std::size_t i = 0; i < any_length.size(); ++i) {
        REQUIRE(any_length[i].kernels.size() == of_shape[i].kernels.size());
        REQUIRE_FALSE(any_length[i].kernels.empty());
        for (std::size_t j = 0; j < any_length[i].kernels.size(); ++j) {
            CHECK(any_length[i].kernels[j].entry == of_shape[i].kernels[j].entry);
            CHECK(any_length[i].kernels[j].specialisation == of_shape[i].kernels[j].specialisation);
        }
    }

    // What the library chooses for them is some kernel too, by options and by manifest.
    options = one_problem();
    options.features.packed = true;
    options.kernels.clear();
    for (const SelectedChain& chain : select_chains(options, store)) {
        CHECK_FALSE(chain.kernels.empty());
    }
    const auto listed = parsed(R"([{"head_dim": 64, "packed": true, "causal": true}])");
    REQUIRE(listed.size() == 1);
    CHECK(listed[0].problem.packed.has_value());

    options.kernels = {"v1"};
    check_refused(ErrorCode::unsupported, {"head-dim 64, v1, sm_90a", "packed"},
                  [&] { select_chains(options, store); });
}

TEST_CASE("a problem that has no kernels is refused where kernels are selected") {
    auto store = memory_store();
    SelectionOptions options = one_problem();
    options.head_dims.clear();
    options.shapes = {"1_1_4096_64"};
    options.features.seqlen_kv = 0;
    options.kernels = {"v4"};
    check_refused(ErrorCode::invalid_argument, {"shape 1_1_4096_64, v4, sm_90a", "seqlen_kv is 0"},
                  [&] { select_chains(options, store); });
    options.kernels.clear();
    check_refused(ErrorCode::invalid_argument, {"shape 1_1_4096_64", "seqlen_kv is 0"},
                  [&] { select_chains(options, store); });
}

TEST_CASE("features that no problem of the command line would have are refused") {
    const auto resolved = [](std::vector<std::string> arguments) {
        CLI::App app;
        SelectionArguments selection;
        selection.add_to(app);
        std::ranges::reverse(arguments);  // as CLI11 takes them
        app.parse(arguments);
        return selection.resolve();
    };
    CHECK(resolved({"--window", "64,0", "--accumulate"}).features ==
          ProblemFeatures{.window_left = 64, .window_right = 0, .accumulate_gradients = true});
    check_refused(ErrorCode::invalid_argument, {"manifest is 'problems.json'", "--head-dim"}, [&] {
        resolved({"--manifest", "problems.json", "--deterministic"});
    });
    check_refused(ErrorCode::invalid_argument, {"heads is '4'", "--shape"}, [&] {
        resolved({"--shape", "1_4_128_64", "--heads", "4"});
    });
}

TEST_CASE("a kernel that several problems share is told once with all that it serves") {
    auto store = memory_store();
    SelectionOptions options = one_problem();
    options.full = true;
    options.kernels = {"v2", "v3"};
    const auto chains = select_chains(options, store);
    CHECK(chains.size() == 4);
    const auto kernels =
        distinct_kernels(chains, [&](const auto& request) { return store.key_of(request); });
    // Delta and convert serve all of them.
    CHECK(kernels.size() == 6);
    const auto delta = std::ranges::find(kernels, "attention_backward_delta",
                                         [](const auto& kernel) { return kernel.request.entry; });
    REQUIRE(delta != kernels.end());
    CHECK(delta->serves == "bf16 head_dim=64 full,causal v2,v3");
}

TEST_CASE("one problem alone has the fields of a manifest entry but those of prebuilding") {
    const auto object = nlohmann::json::parse(
        R"({"batch": 2, "heads": 8, "heads_kv": 2, "seqlen": 100, "head_dim": 64, "head_dim_v": 32,
            "causal": true, "window_left": 9, "dtype": "fp16", "gradient_type": "fp32",
            "softmax_scale": 0.5, "deterministic": true})");
    const AttentionProblem problem = parse_problem(object, "problem");
    CHECK(problem == AttentionProblem{.batch = 2,
                                      .heads = 8,
                                      .heads_kv = 2,
                                      .seqlen_q = 100,
                                      .seqlen_kv = 100,
                                      .head_dim = 64,
                                      .head_dim_v = 32,
                                      .causal = true,
                                      .window_left = 9,
                                      .dtype = DataType::fp16,
                                      .gradient_type = GradientType::fp32,
                                      .softmax_scale = 0.5F,
                                      .deterministic = true});
    const auto refuses = [&](const char* field, const nlohmann::json& value) {
        auto changed = object;
        changed[field] = value;
        check_refused(ErrorCode::invalid_argument, {"problem", field},
                      [&] { parse_problem(changed, "problem"); });
    };
    refuses("targets", nlohmann::json::array({"sm_90a"}));
    refuses("configurations", nlohmann::json::array({"v2"}));
    refuses("softmax_scale", "large");
    refuses("head_dim", nullptr);
}

TEST_CASE("tuned records of a card that is not there choose only where they are asked for") {
    const test::TemporaryDirectory directory;
    const AttentionProblem problem{.seqlen_q = 2048, .seqlen_kv = 2048, .head_dim = 64};
    const TileConfig tuned{.block_q = 16, .block_kv = 64, .warps = 4, .stages = 3};
    tuning::Database database;
    database.put({.card = {.name = "A card", .multiprocessors = 10, .target = "sm_90a"},
                  .problem = problem,
                  .config = tuned,
                  .kernel_digest = "of another build",
                  .checked = true,
                  .samples_milliseconds = {1, 1, 1},
                  .date = "2026-01-01T00:00:00Z",
                  .families = {kernel_families().begin(), kernel_families().end()}});
    const auto file = directory.path() / "tuning.json";
    tuning::write_database(file, database);
    auto store = memory_store();
    const auto chosen = [&](const std::filesystem::path& path, AttentionProblem of,
                            const char* target) {
        std::vector<TileConfig> configs;
        for (const NamedConfig& named :
             ConfigurationChoice(path, store).configs_for(of, device::target_by_name(target))) {
            configs.push_back(named.config);
        }
        return configs;
    };
    const auto has = [&](const std::vector<TileConfig>& configs) {
        return std::ranges::count(configs, tuned) == 1;
    };
    const auto heuristic = default_config(problem, device::target_by_name("sm_90a"));
    CHECK(chosen({}, problem, "sm_90a").front() == heuristic);
    CHECK_FALSE(has(chosen({}, problem, "sm_90a")));
    CHECK(has(chosen(file, problem, "sm_90a")));
    CHECK(chosen(file, problem, "sm_90a").front() == heuristic);
    CHECK_FALSE(has(chosen(file, problem, "sm_120a")));
    // Without a length, those of the usual lengths count.
    CHECK(has(chosen(file, {.head_dim = 64}, "sm_90a")));
    const auto of_any_length = chosen({}, {.head_dim = 64, .causal = true}, "sm_90a");
    CHECK(std::ranges::count(of_any_length, KernelFamily::wgmma, &TileConfig::family) > 0);
}
