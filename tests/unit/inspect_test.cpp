// What `inspect` tells, by NVRTC for real.

#include "inspect.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "command_test_support.hpp"
#include "runtime_implementation.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;

namespace {

InspectOptions options_for(const char* target, std::vector<std::string> kernels) {
    InspectOptions options;
    options.targets = {target};
    options.kernels = std::move(kernels);
    options.causal = true;
    return options;
}

nlohmann::ordered_json inspected(const char* target, const char* kernel) {
    InspectOptions options = options_for(target, {kernel});
    options.json = "-";
    std::ostringstream out;
    inspect(options, out);
    return nlohmann::ordered_json::parse(out.str());
}

std::string text_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("v1 on sm_120a at head_dim 128 causal has 128 registers and spills at most 80 bytes") {
    const auto json = inspected("sm_120a", "v1");
    CHECK(json["registers"] == 128);
    CHECK(json["spill_store_bytes"] <= 80);
    CHECK(json["shared_bytes"] == 81936);
    CHECK(json["threads"] == 512);
}

TEST_CASE("v2 on sm_120a at head_dim 128 causal has no spill and 81936 bytes of shared memory") {
    const auto json = inspected("sm_120a", "v2");
    CHECK(json["registers"] <= 255);
    CHECK(json["stack_bytes"] == 0);
    CHECK(json["spill_store_bytes"] == 0);
    CHECK(json["spill_load_bytes"] == 0);
    CHECK(json["shared_bytes"] == 81936);
    CHECK(json["threads"] == 256);
}

TEST_CASE("v3 on sm_120a at head_dim 128 causal has no spill and 73744 bytes of shared memory") {
    const auto json = inspected("sm_120a", "v3");
    CHECK(json["registers"] <= 255);
    CHECK(json["stack_bytes"] == 0);
    CHECK(json["spill_store_bytes"] == 0);
    CHECK(json["spill_load_bytes"] == 0);
    CHECK(json["shared_bytes"] == 73744);
    CHECK(json["threads"] == 256);
}

TEST_CASE("v4 and v5 compile without a spill and two of its blocks fit a multiprocessor") {
    for (const char* target : {"sm_90a", "sm_120a"}) {
        for (const std::int64_t head_dim : {128, 64}) {
            for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
                for (const bool causal : {false, true}) {
                    InspectOptions options = options_for(target, {"v4", "v5"});
                    if (head_dim == 64) {
                        options.tiles = {"family=mma_resident,block_q=64",
                                         "family=mma_resident,block_q=64,converts_d_q=true"};
                    }
                    options.head_dim = head_dim;
                    options.dtype = dtype;
                    options.causal = causal;
                    for (const Inspection& inspection : inspect_kernels(options)) {
                        CAPTURE(inspection.name);
                        CAPTURE(std::string(target));
                        CAPTURE(head_dim);
                        CAPTURE(causal);
                        const KernelResources& main = inspection.main().resources;
                        CHECK(main.kernel == "attention_backward_mma_resident");
                        CHECK(main.threads == 128);
                        CHECK(main.registers <= 255);
                        CHECK(main.stack_bytes == 0);
                        CHECK(main.spill_store_bytes == 0);
                        CHECK(main.spill_load_bytes == 0);
                        CHECK(main.performance_warnings == std::vector<std::string>{});
                        const bool small = head_dim == 64 && inspection.config.block_q == 32;
                        CHECK(main.blocks_per_multiprocessor == (small ? 3 : 2));
                    }
                }
            }
        }
    }
}

TEST_CASE("wgmma compiles for sm_90a without a spill and without a message of ptxas about speed") {
    for (const std::int64_t head_dim : {128, 64}) {
        for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
            for (const bool causal : {false, true}) {
                InspectOptions options = options_for("sm_90a", {"wgmma"});
                options.head_dim = head_dim;
                options.dtype = dtype;
                options.causal = causal;
                const auto inspections = inspect_kernels(options);
                REQUIRE(inspections.size() == 1);
                CAPTURE(head_dim);
                CAPTURE(std::string(to_string(dtype)));
                CAPTURE(causal);
                for (const InspectedKernel& kernel : inspections.front().kernels) {
                    CAPTURE(kernel.resources.kernel);
                    CHECK(kernel.resources.stack_bytes == 0);
                    CHECK(kernel.resources.spill_store_bytes == 0);
                    CHECK(kernel.resources.spill_load_bytes == 0);
                    CHECK(kernel.resources.performance_warnings == std::vector<std::string>{});
                }
                const KernelResources& main = inspections.front().main().resources;
                CHECK(main.kernel == "attention_backward_wgmma");
                CHECK(main.threads == 512);
                // What 512 threads are launched with; setmaxnreg shares it out anew.
                CHECK(main.registers == 128);
                CHECK(main.blocks_per_multiprocessor == 1);
            }
        }
    }
}

TEST_CASE("a target that nobody named is left out with a note where another takes the kernel") {
    const test::Environment driver("BACKLIGHT_DRIVER_PATH", "/nonexistent/libcuda.so.1");
    InspectOptions options = options_for("", {"wgmma"});
    options.targets.clear();
    std::ostringstream out;
    inspect(options, out);
    CHECK(out.str().find("sm_90a  wgmma") != std::string::npos);
    CHECK(out.str().find("left out: wgmma for sm_120a: family is wgmma") != std::string::npos);
    // A target that is named must take it, and one of those that are not.
    options.targets = {"sm_120a"};
    check_refused(ErrorCode::unsupported, {"family is wgmma", "sm_120a"},
                  [&] { inspect_kernels(options); });
    options.targets.clear();
    options.head_dim = 192;
    check_refused(ErrorCode::unsupported, {"head_dim is 192"}, [&] { inspect_kernels(options); });
}

TEST_CASE("default is inspected as each target gets it") {
    InspectOptions options = options_for("sm_90a", {"default"});
    options.targets.emplace_back("sm_120a");
    options.head_dim = 64;
    const auto inspections = inspect_kernels(options);
    REQUIRE(inspections.size() == 2);
    for (const Inspection& inspection : inspections) {
        CHECK(inspection.name == "default");
        CHECK(inspection.config ==
              default_config(inspection.problem, device::target_by_name(inspection.target)));
    }
    CHECK(inspections[0].main().resources.kernel == "attention_backward_wgmma");
    CHECK(inspections[1].main().resources.kernel == "attention_backward_mma_resident");
    CHECK(format_inspections(inspections).find("default (wgmma_64_128_16_3_heads_4)") !=
          std::string::npos);
}

TEST_CASE("a performance warning is told by inspect in text and in JSON") {
    Inspection inspection{.name = "wgmma", .target = "sm_90a"};
    inspection.kernels.resize(3);
    inspection.kernels[1].resources = {.kernel = "attention_backward_wgmma",
                                       .performance_warnings = {"(C7510) serialized"}};
    const std::string text = format_inspections({inspection});
    CHECK(text.find("sm_90a wgmma attention_backward_wgmma: (C7510) serialized\n") !=
          std::string::npos);
    const auto json = to_json({inspection}, false);
    CHECK(json["performance_warnings"][0] == "(C7510) serialized");
    CHECK(json["kernels"][0]["performance_warnings"].empty());
    CHECK(json["kernels"][1]["performance_warnings"][0] == "(C7510) serialized");
}

TEST_CASE("the JSON of one inspection is of the main kernel, with the chain in launch order") {
    const auto json = inspected("sm_90a", "v2");
    CHECK(json["kernel"] == "v2");
    CHECK(json["target"] == "sm_90a");
    CHECK(json["entry"] == "attention_backward_mma");
    CHECK(json["compile_ms"] > 0);
    CHECK(json["cached"] == false);
    CHECK(json["wall_ms"] >= json["compile_ms"]);
    REQUIRE(json["kernels"].size() == 3);
    CHECK(json["kernels"][0]["entry"] == "attention_backward_delta");
    CHECK(json["kernels"][1]["entry"] == "attention_backward_mma");
    CHECK(json["kernels"][2]["entry"] == "attention_backward_convert");
    CHECK(json["kernels"][1]["registers"] == json["registers"]);
    CHECK(json["kernels"][1]["cubin_bytes"] > 0);
}

TEST_CASE("several inspections are an array in JSON and one table in text") {
    InspectOptions options = options_for("sm_90a", {"v3"});
    options.tiles = {"32,32,4,2"};
    options.head_dim = 64;
    const std::vector<Inspection> inspections = inspect_kernels(options);
    REQUIRE(inspections.size() == 2);
    const auto json = to_json(inspections, false);
    REQUIRE(json.is_array());
    CHECK(json[0]["kernel"] == "v3");
    CHECK(json[1]["kernel"] == "tile_32_32_4_2");
    CHECK_FALSE(json[0]["kernels"][1].contains("specialisation"));
    CHECK(to_json(inspections, true)[0]["kernels"][1].contains("specialisation"));

    const std::string text = format_inspections(inspections);
    CAPTURE(text);
    CHECK(text.find("d=64 bf16 causal") == 0);
    CHECK(text.find("tile_32_32_4_2") != std::string::npos);
    CHECK(text.find("attention_backward_convert") != std::string::npos);
}

TEST_CASE("an inspected kernel has the features that the options ask for") {
    InspectOptions options = options_for("sm_90a", {"v4"});
    options.head_dim = 64;
    options.features = {
        .heads = 4, .heads_kv = 2, .window_left = 64, .gradient_type = GradientType::fp32};
    const std::vector<Inspection> inspections = inspect_kernels(options);
    REQUIRE(inspections.size() == 1);
    for (const char* constant :
         {"grouped_heads = true", "bounded_first_diagonal = true", "fp32_gradients = true"}) {
        CHECK(inspections[0].main().specialisation.find(constant) != std::string::npos);
    }
    CHECK(format_inspections(inspections)
              .starts_with("d=64 bf16 causal window 64,all grouped heads fp32 gradients"));
}

TEST_CASE("a baked sequence length is in the specialisation that is shown, and no other is") {
    InspectOptions options = options_for("sm_90a", {"v3"});
    options.head_dim = 64;
    options.seqlen = 1088;
    options.show_specialisation = true;
    std::ostringstream run_time;
    inspect(options, run_time);
    options.bake_seqlen = true;
    std::ostringstream baked;
    inspect(options, baked);
    CHECK(run_time.str().find("1088") == std::string::npos);
    CHECK(baked.str().find("seqlen_q = 1088") != std::string::npos);
    CHECK(baked.str().find("--gpu-architecture=sm_90a") != std::string::npos);
}

TEST_CASE("dumps are cubins that are ELF files, and sources with all that they include") {
    const test::TemporaryDirectory directory;
    InspectOptions options = options_for("sm_90a", {"v2"});
    options.head_dim = 64;
    options.dump_cubin = (directory.path() / "cubins").string();
    options.dump_source = (directory.path() / "sources").string();
    std::ostringstream out;
    inspect(options, out);

    const auto cubin = directory.path() / "cubins" / "v2_sm_90a_attention_backward_mma.cubin";
    CHECK(text_of(cubin).substr(0, 4) ==
          "\x7f"
          "ELF");
    const auto sources = directory.path() / "sources" / "v2_sm_90a" / "attention_backward_mma";
    CHECK(text_of(sources / "specialisation.cuh").find("head_dim = 64") != std::string::npos);
    CHECK(text_of(sources / "options.txt").find("--gpu-architecture=sm_90a\n") !=
          std::string::npos);
    const std::string source = text_of(sources / "attention_backward_mma.cu");
    const std::string include = "#include \"";
    std::size_t includes = 0;
    for (std::size_t at = source.find(include); at != std::string::npos;
         at = source.find(include, at + 1), ++includes) {
        const std::size_t start = at + include.size();
        const std::string name = source.substr(start, source.find('"', start) - start);
        CAPTURE(name);
        CHECK(std::filesystem::exists(sources / name));
    }
    CHECK(includes > 0);
}

TEST_CASE("a dump into a place that cannot be written to is refused with the file's name") {
    const test::TemporaryDirectory directory;
    const auto file = directory.path() / "file";
    std::ofstream(file) << "in the way";
    InspectOptions options = options_for("sm_90a", {"v2"});
    options.head_dim = 64;
    options.dump_cubin = file.string();
    std::ostringstream out;
    check_refused(ErrorCode::file_error, {file.string(), "could not be written"},
                  [&] { inspect(options, out); });
}

TEST_CASE(
    "without a name the target's presets are inspected and what plans choose if it is another") {
    InspectOptions options = options_for("sm_120a", {});
    options.head_dim = 64;
    std::vector<std::string> names;
    const auto inspected_names = [&] {
        names.clear();
        for (const Inspection& inspection : inspect_kernels(options)) {
            names.push_back(inspection.name);
        }
        return names;
    };
    CHECK(inspected_names() == std::vector<std::string>{"v1", "v2", "v3", "v4", "v5", "default"});
    // On Hopper at head_dim 128 that is the preset itself.
    options = options_for("sm_90a", {});
    CHECK(inspected_names() == std::vector<std::string>{"v1", "v2", "v3", "wgmma", "v4", "v5"});
    check_refused(ErrorCode::unsupported, {"family is wgmma", "sm_120a"},
                  [] { inspect_kernels(options_for("sm_120a", {"wgmma"})); });
}

TEST_CASE("inspect refuses what no kernel takes, by field, value and rule") {
    check_refused(ErrorCode::invalid_argument, {"target", "sm_89", "TMA"},
                  [] { inspect_kernels(options_for("sm_89", {"v2"})); });
    check_refused(ErrorCode::unknown_kernel, {"v9", "v1, v2, v3"},
                  [] { inspect_kernels(options_for("sm_90a", {"v9"})); });
    InspectOptions options = options_for("sm_120a", {});
    options.tiles = {"128,128,16,2"};
    check_refused(ErrorCode::shared_memory_exceeded, {"sm_120a"},
                  [&] { inspect_kernels(options); });
}
