// Every refusal of a Runtime that needs no GPU to be seen, over the fake driver: the code, what the
// message names, and that nothing was launched.

#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "backlight/runtime.hpp"
#include "device/driver_api.hpp"
#include "runtime_implementation.hpp"
#include "test_support.hpp"

using namespace backlight;
using test::check_refused;
using test::Environment;
using test::fake_options;
using test::fresh_driver;
using test::tensors_at;

namespace {

const AttentionProblem problem{
    .batch = 2, .heads = 3, .seqlen_q = 128, .seqlen_kv = 128, .head_dim = 128, .causal = true};

RuntimeOptions options_with_driver(const std::string& path) {
    RuntimeOptions options;
    options.driver_path = path;
    options.disable_disk_cache = true;
    return options;
}

RuntimeOptions options_with_nvrtc(const char* path) {
    RuntimeOptions options = options_with_driver(BACKLIGHT_FAKE_DRIVER_PATH);
    options.nvrtc_path = path;
    return options;
}

/// The fake driver under a name that was not opened before: it is initialised anew.
class FreshDriverName {
  public:
    FreshDriverName() : path_((directory_.path() / "libcuda.so.1").string()) {
        std::filesystem::create_symlink(BACKLIGHT_FAKE_DRIVER_PATH, path_);
    }
    const std::string& path() const noexcept { return path_; }

  private:
    test::TemporaryDirectory directory_;
    std::string path_;
};

}  // namespace

// --- Making a Runtime ---------------------------------------------------------------------------

TEST_CASE("no driver: the path that was tried, and what to do") {
    check_refused(ErrorCode::driver_not_found,
                  {"/does/not/exist/libcuda.so.1", "BACKLIGHT_DRIVER_PATH", "install"}, [] {
                      const Runtime runtime(options_with_driver("/does/not/exist/libcuda.so.1"));
                  });
}

TEST_CASE("a driver named by the environment is the one that is opened") {
    const Environment driver("BACKLIGHT_DRIVER_PATH", "/from/the/environment/libcuda.so.1");
    check_refused(ErrorCode::driver_not_found, {"/from/the/environment/libcuda.so.1"},
                  [] { const Runtime runtime; });
    // What the caller names counts for more.
    fresh_driver();
    CHECK_NOTHROW(Runtime{fake_options()});
}

TEST_CASE("a driver that lacks a function is refused with its path and the function") {
    check_refused(
        ErrorCode::driver_not_found,
        {BACKLIGHT_FAKE_DRIVER_TOO_OLD_PATH, "cuLaunchKernelEx", "newer driver"},
        [] { const Runtime runtime(options_with_driver(BACKLIGHT_FAKE_DRIVER_TOO_OLD_PATH)); });
}

TEST_CASE("a driver without any device: no device found") {
    auto& driver = fresh_driver();
    const FreshDriverName name;
    driver.fake_fail_next("cuInit", CUDA_ERROR_NO_DEVICE);
    check_refused(ErrorCode::device_not_found, {"no CUDA device"},
                  [&] { const Runtime runtime(options_with_driver(name.path())); });
    // A failure is not kept.
    CHECK_NOTHROW(Runtime{options_with_driver(name.path())});
}

TEST_CASE("a driver that does not start: its own name and text of the error") {
    auto& driver = fresh_driver();
    const FreshDriverName name;
    driver.fake_fail_next("cuInit", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    check_refused(ErrorCode::driver_failed,
                  {"cuInit", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "display driver"},
                  [&] { const Runtime runtime(options_with_driver(name.path())); });
}

TEST_CASE("an error that the driver itself cannot name is told by its number") {
    auto& driver = fresh_driver();
    driver.fake_fail_next("cuDeviceGetCount", CUDA_ERROR_NOT_SUPPORTED);
    check_refused(ErrorCode::driver_failed, {"number 801"},
                  [] { const Runtime runtime(fake_options()); });
}

TEST_CASE("a device ordinal that is not there is refused with the number of devices") {
    auto& driver = fresh_driver();
    driver.fake_set_device_count(2);
    for (const int ordinal : {2, -1, std::numeric_limits<int>::max()}) {
        RuntimeOptions options = fake_options();
        options.device = ordinal;
        check_refused(ErrorCode::device_not_found,
                      {"device is " + std::to_string(ordinal), "2 CUDA device"},
                      [&] { const Runtime runtime(options); });
    }
    driver.fake_set_device_count(0);
    check_refused(ErrorCode::device_not_found, {"device is 0", "0 CUDA device"},
                  [] { const Runtime runtime(fake_options()); });
}

TEST_CASE("a card without TMA is refused with its name, its capability and the one needed") {
    auto& driver = fresh_driver();
    driver.fake_set_compute_capability(8, 9);
    check_refused(ErrorCode::unsupported_device, {"Fake device 0", "8.9", "9.0", "TMA"},
                  [] { const Runtime runtime(fake_options()); });
    // Another card of the machine may do.
    driver.fake_set_device_count(2);
    driver.fake_set_compute_capability_of(1, 12, 0);
    RuntimeOptions options = fake_options();
    options.device = 1;
    const Runtime runtime(options);
    CHECK(runtime.target() == "sm_120a");
    CHECK(runtime.device_name() == "Fake device 1");
}

// --- The compiler -------------------------------------------------------------------------------

TEST_CASE("NVRTC is not opened before a kernel must be had, and refused then") {
    auto& driver = fresh_driver();
    struct Case {
        const char* path;
        ErrorCode code;
        const char* fragment;
    };
    for (const Case& wrong :
         {Case{"/does/not/exist/libnvrtc.so", ErrorCode::nvrtc_not_found, "BACKLIGHT_NVRTC_PATH"},
          {BACKLIGHT_FAKE_NVRTC_OLD_PATH, ErrorCode::nvrtc_too_old, "12.4"},
          {BACKLIGHT_FAKE_NVRTC_FAILS_PATH, ErrorCode::compile_failed, "takes no program"},
          {BACKLIGHT_FAKE_NVRTC_SILENT_PATH, ErrorCode::compile_failed, "registers"}}) {
        Runtime runtime(options_with_nvrtc(wrong.path));
        check_refused(wrong.code, {wrong.fragment}, [&] { runtime.backward(problem); });
        CHECK(runtime.counters().compiles == 0);
    }
    CHECK(driver.fake_library_load_count() == 0);
    CHECK(driver.fake_launch_count() == 0);
}

TEST_CASE("a compile that fails carries path, version, options and log through the Runtime") {
    fresh_driver();
    Runtime runtime(options_with_nvrtc(BACKLIGHT_FAKE_NVRTC_FAILS_PATH));
    check_refused(ErrorCode::compile_failed,
                  {BACKLIGHT_FAKE_NVRTC_FAILS_PATH, "12.8.99", "--gpu-architecture=sm_90a",
                   "fake.cu(1): error: this compiler takes no program"},
                  [&] { runtime.backward(problem); });
}

TEST_CASE("an NVRTC that does not know the card is refused with the card's target") {
    auto& driver = fresh_driver();
    driver.fake_set_compute_capability(12, 0);
    Runtime runtime(options_with_nvrtc(BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH));
    check_refused(ErrorCode::nvrtc_too_old,
                  {"sm_120a", BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH, "12.8.99"},
                  [&] { runtime.backward(problem); });
    CHECK(driver.fake_library_load_count() == 0);
}

// --- Making a plan ------------------------------------------------------------------------------

TEST_CASE("a problem or configuration that breaks a rule is refused before anything is compiled") {
    auto& driver = fresh_driver();
    driver.fake_set_compute_capability(12, 0);
    Runtime runtime(fake_options());

    AttentionProblem wrong = problem;
    wrong.seqlen_q = wrong.seqlen_kv = 100;
    check_refused(ErrorCode::unsupported, {"seqlen_q is 100", "block_q = 32"},
                  [&] { runtime.backward(wrong, kernel_preset("v3")); });
    wrong = problem;
    wrong.head_dim = 264;
    check_refused(ErrorCode::unsupported, {"head_dim is 264"}, [&] { runtime.backward(wrong); });
    wrong = problem;
    wrong.deterministic = true;
    check_refused(ErrorCode::unsupported, {"deterministic is true"},
                  [&] { runtime.backward(wrong, kernel_preset("v3")); });
    wrong = problem;
    wrong.softmax_scale = std::numeric_limits<float>::quiet_NaN();
    check_refused(ErrorCode::invalid_argument, {"softmax_scale is nan"},
                  [&] { runtime.backward(wrong); });
    wrong = problem;
    wrong.heads = 0;
    check_refused(ErrorCode::invalid_argument, {"heads is 0"}, [&] { runtime.backward(wrong); });
    wrong = problem;
    wrong.batch = wrong.heads = wrong.seqlen_q = wrong.seqlen_kv =
        std::numeric_limits<std::int64_t>::max();
    check_refused(ErrorCode::invalid_argument, {"batch is 9223372036854775807"},
                  [&] { runtime.backward(wrong); });

    TileConfig config = kernel_preset("v2");
    config.stages = 2;
    check_refused(ErrorCode::shared_memory_exceeded, {"114704", "sm_120a", "101376"},
                  [&] { runtime.backward(problem, config); });
    config = kernel_preset("v2");
    config.warps = 5;
    check_refused(ErrorCode::invalid_argument, {"warps is 5"},
                  [&] { runtime.backward(problem, config); });

    CHECK(runtime.counters().compiles == 0);
    CHECK(driver.fake_library_load_count() == 0);
}

TEST_CASE("a cubin that the driver refuses is an error with the driver's name of it") {
    auto& driver = fresh_driver();
    // From no cache: one that comes from there is compiled anew instead.
    RuntimeOptions options = fake_options();
    options.disable_disk_cache = true;
    Runtime runtime(options);
    struct Case {
        const char* symbol;
        const char* fragment;
    };
    for (const Case& step : {Case{"cuLibraryLoadData", "load a cubin"},
                             {"cuLibraryGetKernel", "attention_backward_delta"},
                             {"cuKernelSetAttribute", "shared memory"}}) {
        driver.fake_fail_next(step.symbol, CUDA_ERROR_NO_BINARY_FOR_GPU);
        check_refused(ErrorCode::driver_failed, {"CUDA_ERROR_NO_BINARY_FOR_GPU", step.fragment},
                      [&] { runtime.backward(problem); });
        // What was loaded before the failure is unloaded.
        CHECK(driver.fake_loaded_library_count() == 0);
    }
    CHECK_NOTHROW(runtime.backward(problem));
}

TEST_CASE("a cubin from the cache that the driver refuses is compiled anew, once") {
    auto& driver = fresh_driver();
    const test::TemporaryDirectory directory;
    RuntimeOptions options = fake_options();
    options.cache_directory = directory.path();
    options.disable_disk_cache = false;
    {
        Runtime writer(options);
        CHECK_NOTHROW(writer.backward(problem));
    }
    Runtime reader(options);
    driver.fake_fail_next("cuLibraryLoadData", CUDA_ERROR_INVALID_IMAGE);
    const auto plan = reader.backward(problem);
    CHECK(reader.counters().compiles == 1);
    CHECK(reader.counters().layer_hits() == plan->resources().size());
}

TEST_CASE("sequence lengths that share a cubin share what is loaded of it") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    std::vector<std::shared_ptr<const BackwardPlan>> plans;
    for (const std::int64_t seqlen : {64, 128, 192, 256}) {
        AttentionProblem longer = problem;
        longer.seqlen_q = seqlen;
        longer.seqlen_kv = seqlen;
        plans.push_back(runtime.backward(longer, kernel_preset("v3")));
    }
    CHECK(driver.fake_loaded_library_count() == 3);
    // wgmma's delta kernel lays its results out otherwise.
    for (const std::int64_t seqlen : {128, 256, 384}) {
        AttentionProblem longer = problem;
        longer.seqlen_q = seqlen;
        longer.seqlen_kv = seqlen;
        plans.push_back(runtime.backward(longer, kernel_preset("wgmma")));
    }
    CHECK(driver.fake_loaded_library_count() == 3 + plans.back()->resources().size());
}

// --- Running ------------------------------------------------------------------------------------

TEST_CASE("a run that is refused launches nothing and encodes nothing") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem);
    const std::size_t bytes = plan->workspace_bytes();
    const BackwardTensors good = tensors_at(problem, test::tensor_base);
    void* const workspace = test::workspace_address;
    const auto refused = [&](ErrorCode code, std::initializer_list<std::string_view> fragments,
                             const BackwardTensors& tensors, void* space, std::size_t size) {
        check_refused(code, fragments, [&] { plan->run(tensors, space, size, nullptr); });
        CHECK(driver.fake_launch_count() == 0);
        CHECK(driver.fake_encode_count() == 0);
    };

    refused(ErrorCode::invalid_argument, {"workspace is null"}, good, nullptr, bytes);
    refused(ErrorCode::invalid_argument, {"workspace is 0x", "256"}, good,
            static_cast<std::byte*>(workspace) + 128, bytes);
    refused(ErrorCode::workspace_too_small,
            {"workspace_bytes is " + std::to_string(bytes - 1), "needs " + std::to_string(bytes)},
            good, workspace, bytes - 1);
    refused(ErrorCode::workspace_too_small, {"workspace_bytes is 0"}, good, workspace, 0);

    const auto with = [&](auto change) {
        BackwardTensors tensors = good;
        change(tensors);
        return tensors;
    };
    refused(ErrorCode::invalid_argument, {"q.data is null"},
            with([](auto& t) { t.q.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"k.data is null"},
            with([](auto& t) { t.k.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"v.data is null"},
            with([](auto& t) { t.v.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"o.data is null"},
            with([](auto& t) { t.o.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_o.data is null"},
            with([](auto& t) { t.d_o.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"lse.data is null"},
            with([](auto& t) { t.lse.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_q.data is null"},
            with([](auto& t) { t.d_q.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_k.data is null"},
            with([](auto& t) { t.d_k.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_v.data is null"},
            with([](auto& t) { t.d_v.data = nullptr; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"q.data is 0x", "16 bytes"},
            with([](auto& t) { t.q.data = static_cast<const char*>(t.q.data) + 2; }), workspace,
            bytes);
    refused(ErrorCode::invalid_argument, {"v.stride_seqlen is 129", "8 elements"},
            with([](auto& t) { t.v.stride_seqlen = 129; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_k.stride_head is 8", "overlap itself"},
            with([](auto& t) { t.d_k.stride_head = 8; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_v.data", "d_k.data", "memory of its own"},
            with([](auto& t) { t.d_v.data = t.d_k.data; }), workspace, bytes);
    refused(ErrorCode::invalid_argument, {"d_q.data", "q.data", "memory of its own"},
            with([](auto& t) { t.d_q.data = const_cast<void*>(t.q.data); }), workspace, bytes);

    // The very same call without a fault goes through.
    plan->run(good, workspace, bytes, nullptr);
    CHECK(driver.fake_launch_count() == plan->resources().size());
}

TEST_CASE("a tensor map that the driver refuses is an error, and nothing is launched") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem);
    plan->run(tensors_at(problem, test::tensor_base), test::workspace_address,
              plan->workspace_bytes(), nullptr);
    const std::size_t maps = driver.fake_encode_count();
    REQUIRE(maps >= 4);
    for (int calls = 0; calls < static_cast<int>(maps); ++calls) {
        driver.fake_reset();
        // Addresses that are new each time, so that every map is encoded.
        const auto fresh = tensors_at(
            problem, test::tensor_base + static_cast<std::uintptr_t>(calls + 1) * 0x100000);
        driver.fake_fail_after("cuTensorMapEncodeTiled", calls, CUDA_ERROR_INVALID_VALUE);
        check_refused(
            ErrorCode::driver_failed, {"CUDA_ERROR_INVALID_VALUE", "cuTensorMapEncodeTiled"},
            [&] { plan->run(fresh, test::workspace_address, plan->workspace_bytes(), nullptr); });
        CHECK(driver.fake_launch_count() == 0);
        CHECK(driver.fake_encode_count() == static_cast<std::size_t>(calls));
        // The failure left no map behind that was never encoded.
        plan->run(fresh, test::workspace_address, plan->workspace_bytes(), nullptr);
        CHECK(driver.fake_launch_count() == plan->resources().size());
        CHECK(driver.fake_encode_count() == maps);
    }
}

TEST_CASE(
    "a launch that the driver refuses is an error with the driver's name, and ends the chain") {
    auto& driver = fresh_driver();
    Runtime runtime(fake_options());
    const auto plan = runtime.backward(problem);
    const BackwardTensors tensors = tensors_at(problem, test::tensor_base);
    for (int launches = 0; launches < static_cast<int>(plan->resources().size()); ++launches) {
        driver.fake_reset();
        driver.fake_fail_after("cuLaunchKernelEx", launches, CUDA_ERROR_LAUNCH_FAILED);
        check_refused(
            ErrorCode::driver_failed,
            {"launch", "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
            [&] { plan->run(tensors, test::workspace_address, plan->workspace_bytes(), nullptr); });
        CHECK(driver.fake_launch_count() == static_cast<std::size_t>(launches));
    }
}

// --- Options ------------------------------------------------------------------------------------

TEST_CASE("options that the caller leaves empty come from the environment") {
    const Environment driver("BACKLIGHT_DRIVER_PATH", "/environment/driver");
    const Environment nvrtc("BACKLIGHT_NVRTC_PATH", "/environment/nvrtc");
    const Environment cache("BACKLIGHT_CACHE_PATH", "/environment/cache");
    RuntimeOptions options = with_environment({});
    CHECK(options.driver_path == "/environment/driver");
    CHECK(options.nvrtc_path == "/environment/nvrtc");
    CHECK(options.cache_directory == "/environment/cache");
    options = with_environment({.driver_path = "/own/driver",
                                .nvrtc_path = "/own/nvrtc",
                                .cache_directory = "/own/cache"});
    CHECK(options.driver_path == "/own/driver");
    CHECK(options.nvrtc_path == "/own/nvrtc");
    CHECK(options.cache_directory == "/own/cache");
}

TEST_CASE("the cache lies under the XDG cache folder, else under the home folder") {
    const Environment cache("BACKLIGHT_CACHE_PATH", std::nullopt);
    const Environment home("HOME", "/home/somebody");
    {
        const Environment xdg("XDG_CACHE_HOME", "/xdg");
        CHECK(with_environment({}).cache_directory == "/xdg/backlight");
    }
    const Environment xdg("XDG_CACHE_HOME", std::nullopt);
    CHECK(with_environment({}).cache_directory == "/home/somebody/.cache/backlight");
}

TEST_CASE("the tuning database lies beside the cache however the cache's path ends") {
    const Environment tuning("BACKLIGHT_TUNING_PATH", std::nullopt);
    for (const char* path : {"/own/cache", "/own/cache/", "/own/cache//", "/own/cache/./"}) {
        CAPTURE(path);
        const Environment cache("BACKLIGHT_CACHE_PATH", path);
        CHECK(with_environment({}).cache_directory == "/own/cache");
        CHECK(with_environment({}).tuning_database == "/own/cache.tuning.json");
    }
    CHECK(with_environment({.cache_directory = "/"}).cache_directory == "/");
}

TEST_CASE("relative paths are meant from where the process is when the Runtime is made") {
    const auto here = std::filesystem::current_path();
    const Environment tuning("BACKLIGHT_TUNING_PATH", "tuning.json");
    CHECK(with_environment({}).tuning_database == here / "tuning.json");
    CHECK(with_environment({.tuning_database = "own.json"}).tuning_database == here / "own.json");
    CHECK(with_environment({.cache_directory = "cache"}).cache_directory == here / "cache");
}

TEST_CASE("a working directory that is gone costs what lies in it and nothing else") {
    fresh_driver();
    const auto here = std::filesystem::current_path();
    const test::TemporaryDirectory folder;
    const Environment layers("BACKLIGHT_CACHE_LAYERS", "pack.blpack:kernels");
    RuntimeOptions options = fake_options();
    std::filesystem::create_directory(folder.path() / "gone");
    std::filesystem::current_path(folder.path() / "gone");
    std::filesystem::remove(folder.path() / "gone");
    options = with_environment(options);
    try {
        Runtime runtime(fake_options());
        CHECK(runtime.backward({.seqlen_q = 64, .seqlen_kv = 64, .head_dim = 64}) != nullptr);
    } catch (const Error& error) {
        FAIL_CHECK(error.what());
    }
    std::filesystem::current_path(here);
    CHECK(options.cache_layers.size() == 2);
}

TEST_CASE("a disabled disk cache has no directory, whatever the environment says") {
    const Environment cache("BACKLIGHT_CACHE_PATH", "/environment/cache");
    RuntimeOptions options;
    options.disable_disk_cache = true;
    CHECK(with_environment(options).cache_directory.empty());
    options.cache_directory = "/own";
    CHECK(with_environment(options).cache_directory.empty());
}
