#include "compiler/kernel_store.hpp"

#include <algorithm>
#include <fstream>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "attention/kernels.hpp"
#include "backlight/cache/disk_cache.hpp"
#include "test_support.hpp"

using namespace backlight;
using compiler::KernelRequest;
using compiler::KernelStore;
using test::check_refused;

namespace {

const AttentionProblem problem{.seqlen_q = 512, .seqlen_kv = 512, .head_dim = 64};

KernelRequest convert_request(std::string_view target = "sm_90a") {
    return attention::convert_kernel(problem, kernel_preset("v3"), device::target_by_name(target))
        .request;
}

KernelRequest main_request(std::string_view target) {
    return attention::mma_kernel(problem, kernel_preset("v3"), device::target_by_name(target))
        .request;
}

}  // namespace

TEST_CASE("a kernel is compiled once, then found in memory") {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    const auto first = store.get(convert_request());
    CHECK_FALSE(first.cached);
    CHECK(first.kernel->cubin.size() > 100);
    CHECK(first.kernel->resources.registers > 0);
    CHECK(first.kernel->compile_milliseconds > 0);
    const auto second = store.get(convert_request());
    CHECK(second.cached);
    CHECK(second.kernel == first.kernel);
    CHECK(store.compiles() == 1);
    CHECK(store.memory_hits() == 1);
    CHECK(store.layer_hits() == 0);
    CHECK(store.cache().layer_count() == 0);
}

TEST_CASE("a kernel that another store has compiled is found on disk, with all it said of it") {
    const test::TemporaryDirectory directory;
    KernelStore writer(
        {.nvrtc_path = test::real_nvrtc_path(), .cache_directory = directory.path()});
    const auto compiled = writer.get(convert_request());
    KernelStore reader(
        {.nvrtc_path = test::real_nvrtc_path(), .cache_directory = directory.path()});
    const auto found = reader.get(convert_request());
    CHECK(found.cached);
    CHECK(reader.compiles() == 0);
    CHECK(reader.layer_hits() == 1);
    CHECK(found.kernel->cubin == compiled.kernel->cubin);
    CHECK(found.kernel->resources == compiled.kernel->resources);
    CHECK(found.kernel->compile_milliseconds == 0);
}

TEST_CASE("a kernel that NVRTC has compiled before tells its registers and spills all the same") {
    compiler::ResourceUsage first;
    for (const bool again : {false, true}) {
        KernelStore store({.nvrtc_path = test::real_nvrtc_path()});
        const auto compiled = store.get(main_request("sm_90a"));
        CHECK_FALSE(compiled.cached);
        CHECK(compiled.kernel->resources.registers > 0);
        CHECK((!again || compiled.kernel->resources == first));
        first = compiled.kernel->resources;
    }
}

TEST_CASE("no precompiled headers that processes would share are asked for") {
    for (const char* target : {"sm_90a", "sm_120a"}) {
        for (const std::string& option : KernelStore::options_for(device::target_by_name(target))) {
            CAPTURE(option);
            CHECK(option.find("pch") == std::string::npos);
        }
    }
}

TEST_CASE("a kernel of a text of the caller's is compiled and found by that text") {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    KernelRequest request{.source = "own.cu",
                          .entry = "own_kernel",
                          .target = device::target_by_name("sm_90a"),
                          .text =
                              "#include \"primitives/types.cuh\"\n"
                              "extern \"C\" __global__ void own_kernel(int* out) {\n"
                              "    *out = backlight::kernel::warp_size;\n"
                              "}\n"};
    CHECK(store.get(request).kernel->resources.registers > 0);
    CHECK(store.get(request).cached);
    request.text += "// Another text.\n";
    CHECK_FALSE(store.get(request).cached);
    CHECK(store.compiles() == 2);
}

TEST_CASE("a kernel on disk serves its own target and specialisation only") {
    const test::TemporaryDirectory directory;
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = directory.path()});
    store.get(convert_request("sm_90a"));
    store.get(convert_request("sm_120a"));
    KernelRequest other = convert_request("sm_90a");
    other.specialisation += "// Another text.\n";
    store.get(other);
    CHECK(store.compiles() == 3);
    CHECK(store.layer_hits() == 0);
    CHECK(store.memory_hits() == 0);
}

TEST_CASE("damaged files in the cache cost a compile, no more") {
    const test::TemporaryDirectory directory;
    const compiler::KernelStoreOptions options{.nvrtc_path = test::real_nvrtc_path(),
                                               .cache_directory = directory.path()};
    const auto compiled = KernelStore(options).get(convert_request());
    std::size_t damaged = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(directory.path())) {
        if (file.is_regular_file() && file.file_size() > 1000) {
            std::filesystem::resize_file(file.path(), file.file_size() / 2);
            ++damaged;
        }
    }
    REQUIRE(damaged == 1);
    KernelStore store(options);
    const auto again = store.get(convert_request());
    CHECK(store.compiles() == 1);
    CHECK(again.kernel->cubin == compiled.kernel->cubin);
}

TEST_CASE("an entry whose metadata are not what we write is a miss, and is replaced") {
    const char* const good_rest =
        R"(,"stack_bytes":0,"spill_store_bytes":0,"spill_load_bytes":0,"static_shared_bytes":0,)"
        R"("entry":"attention_backward_convert"})";
    const std::string other_entry =
        R"({"registers":32,"stack_bytes":0,"spill_store_bytes":0,"spill_load_bytes":0,)"
        R"("static_shared_bytes":0,"entry":"attention_backward_delta"})";
    const std::vector<std::string> odd = {"",
                                          "null",
                                          "[1]",
                                          "{}",
                                          "not json",
                                          other_entry,
                                          std::string(R"({"registers":"255")") + good_rest,
                                          std::string(R"({"registers":134217728)") + good_rest,
                                          std::string(R"({"registers":-1)") + good_rest,
                                          std::string(R"({"registers":1e30)") + good_rest};
    for (const std::string& metadata : odd) {
        CAPTURE(metadata);
        const test::TemporaryDirectory directory;
        const auto options = compiler::KernelStoreOptions{.nvrtc_path = test::real_nvrtc_path(),
                                                          .cache_directory = directory.path()};
        std::vector<std::byte> cubin;
        {
            KernelStore writer(options);
            cubin = writer.get(convert_request()).kernel->cubin;
            cache::DiskCache disk(directory.path(), nullptr);
            CHECK(disk.store(writer.key_of(convert_request()),
                             {.metadata = metadata, .payload = cubin}));
        }
        KernelStore reader(options);
        CHECK(reader.get(convert_request()).kernel->cubin == cubin);
        CHECK(reader.compiles() == 1);
        KernelStore later(options);
        CHECK(later.get(convert_request()).cached);
    }
}

TEST_CASE("threads that ask for the same kernel at the same time share one compilation") {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    std::vector<std::shared_ptr<const compiler::CompiledKernel>> found(8);
    std::vector<std::thread> threads;
    for (auto& place : found) {
        threads.emplace_back([&] { place = store.get(convert_request()).kernel; });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const auto& kernel : found) {
        CHECK(kernel != nullptr);
        CHECK(kernel == found.front());
    }
    CHECK(store.compiles() == 1);
    CHECK(store.memory_hits() == 7);
}

TEST_CASE("a specialisation that does not compile: path, version, options and log, at each try") {
    const test::TemporaryDirectory directory;
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = directory.path()});
    KernelRequest broken = convert_request();
    broken.specialisation += "\nundeclared_type broken;\n";
    for (int attempt = 0; attempt < 2; ++attempt) {
        check_refused(
            ErrorCode::compile_failed,
            {"attention_backward_convert.cu", store.nvrtc().path(), store.nvrtc().version(),
             "--gpu-architecture=sm_90a", "--std=c++17", "undeclared_type", "specialisation.cuh"},
            [&] { store.get(broken); });
    }
    CHECK(store.compiles() == 0);
    // The failure stays with that request.
    CHECK_NOTHROW(store.get(convert_request()));
}

TEST_CASE("every thread that waits for a compilation that fails gets the reason") {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    KernelRequest broken = convert_request();
    broken.specialisation += "\nundeclared_type broken;\n";
    std::atomic<int> failures = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&] {
            try {
                store.get(broken);
            } catch (const Error& error) {
                failures += error.code() == ErrorCode::compile_failed ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(failures == 4);
}

TEST_CASE("a target that NVRTC does not know is refused before it is compiled for") {
    KernelStore store(
        {.nvrtc_path = BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH, .cache_directory = {}});
    check_refused(ErrorCode::nvrtc_too_old, {"sm_120a", BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH},
                  [&] { store.get(convert_request("sm_120a")); });
}

TEST_CASE("a compiler that says nothing of registers and spills is an error") {
    KernelStore store({.nvrtc_path = BACKLIGHT_FAKE_NVRTC_SILENT_PATH, .cache_directory = {}});
    check_refused(ErrorCode::compile_failed, {"registers"}, [&] { store.get(convert_request()); });
}

TEST_CASE("the main kernel's TMA copies go to .shared::cta, on every target") {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    const std::regex to_block(R"(cp\.async\.bulk\.tensor\.4d\.shared::cta\.global)");
    const std::regex to_cluster(R"(cp\.async\.bulk[^;]*\.shared::cluster)");
    for (const char* target : {"sm_90a", "sm_120a"}) {
        CAPTURE(target);
        const std::string ptx = store.ptx(main_request(target));
        CHECK(ptx.find(std::string(".target ") + target) != std::string::npos);
        CHECK(std::regex_search(ptx, to_block));
        CHECK_FALSE(std::regex_search(ptx, to_cluster));
    }
}

// --- Everything that the library offers compiles, within its resources ---------------------------

namespace {

struct Compilation {
    AttentionProblem problem;
    TileConfig config;
    std::string target;
    std::string text() const { return to_string(problem) + " " + to_string(config) + " " + target; }
    // Filled in.
    std::string failure{};
    KernelResources resources{};
};

/// On two threads, as doctest's assertions are kept out of them.
void compile_all(std::vector<Compilation>& compilations) {
    KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    std::atomic<std::size_t> next = 0;
    const auto work = [&] {
        for (std::size_t i = next++; i < compilations.size(); i = next++) {
            Compilation& compilation = compilations[i];
            try {
                const auto plan =
                    attention::backward_chain(compilation.problem, compilation.config,
                                              device::target_by_name(compilation.target))[1];
                compilation.resources = attention::kernel_resources(plan, store.get(plan.request));
            } catch (const std::exception& error) {
                compilation.failure = error.what();
            }
        }
    };
    std::thread other(work);
    work();
    other.join();
}

void preset_compiles_within(std::string_view preset, int spill_limit_at_128) {
    std::vector<Compilation> compilations;
    for (const char* target : {"sm_90a", "sm_120a"}) {
        for (const std::int64_t head_dim : {64, 128}) {
            for (const bool causal : {false, true}) {
                for (const DataType dtype : {DataType::bf16, DataType::fp16}) {
                    compilations.push_back({.problem = {.seqlen_q = 512,
                                                        .seqlen_kv = 512,
                                                        .head_dim = head_dim,
                                                        .causal = causal,
                                                        .dtype = dtype},
                                            .config = kernel_preset(preset),
                                            .target = target});
                }
            }
        }
    }
    compile_all(compilations);
    for (const Compilation& compilation : compilations) {
        CAPTURE(compilation.text());
        REQUIRE_MESSAGE(compilation.failure.empty(), compilation.failure);
        const KernelResources& resources = compilation.resources;
        const int limit = compilation.problem.head_dim == 128 ? spill_limit_at_128 : 0;
        CHECK(resources.spill_store_bytes <= limit);
        CHECK((resources.spill_load_bytes == 0 || limit > 0));
        CHECK(resources.registers <= 65536 / resources.threads);
        CHECK(resources.registers <= 255);
        CHECK(resources.blocks_per_multiprocessor >= 1);
        CHECK(resources.shared_bytes ==
              shared_memory_bytes(compilation.config, compilation.problem));
        CHECK(resources.threads == compilation.config.warps * 32);
        CHECK(resources.target == compilation.target);
    }
}

}  // namespace

TEST_CASE(
    "v1 compiles for every data type, mask, head_dim and target, with 80 bytes of spills at "
    "most") {
    preset_compiles_within("v1", 80);
}

TEST_CASE("v2 compiles for every data type, mask, head_dim and target, without spills") {
    preset_compiles_within("v2", 0);
}

TEST_CASE("v3 compiles for every data type, mask, head_dim and target, without spills") {
    preset_compiles_within("v3", 0);
}

TEST_CASE("configurations beside the presets that the geometry allows compile") {
    const TileConfig configs[] = {
        {.block_q = 16, .block_kv = 64, .warps = 4, .stages = 1},
        {.block_q = 16, .block_kv = 32, .warps = 2, .stages = 4},
        {.block_q = 32, .block_kv = 32, .warps = 4, .stages = 2},
        {.block_q = 32, .block_kv = 64, .warps = 4, .stages = 3},
        {.block_q = 32, .block_kv = 128, .warps = 8, .stages = 2},
        {.block_q = 96, .block_kv = 96, .warps = 6, .stages = 1},
        {.block_q = 64, .block_kv = 32, .warps = 4, .stages = 2},
        {.block_q = 64, .block_kv = 64, .warps = 4, .stages = 1},
        {.block_q = 64, .block_kv = 64, .warps = 8, .stages = 2},
        {.block_q = 64, .block_kv = 128, .warps = 8, .stages = 2},
        {.block_q = 128, .block_kv = 64, .warps = 8, .stages = 1},
        {.block_q = 128, .block_kv = 128, .warps = 16, .stages = 1},
        {.block_q = 64, .block_kv = 64, .warps = 16, .stages = 8},
        {.block_q = 32,
         .block_kv = 64,
         .warps = 8,
         .stages = 2,
         .sequence_lengths = SequenceLengths::compile_time},
    };
    std::vector<Compilation> compilations;
    for (const TileConfig& config : configs) {
        compilations.push_back(
            {.problem = {.seqlen_q = 768, .seqlen_kv = 768, .head_dim = 64, .causal = true},
             .config = config,
             .target = "sm_90a"});
    }
    compile_all(compilations);
    for (const Compilation& compilation : compilations) {
        CAPTURE(compilation.text());
        CHECK_MESSAGE(compilation.failure.empty(), compilation.failure);
        CHECK(compilation.resources.registers > 0);
    }
}
