#include "compiler/nvrtc.hpp"

#include <regex>
#include <string>
#include <vector>

#include "test_support.hpp"

using namespace backlight;
using compiler::Nvrtc;
using test::check_refused;

TEST_CASE("an NVRTC that does not exist is refused with its path and what to do") {
    check_refused(
        ErrorCode::nvrtc_not_found,
        {"/does/not/exist/libnvrtc.so", "BACKLIGHT_NVRTC_PATH", "12.8", "nvidia-cuda-nvrtc"},
        [] { const Nvrtc nvrtc("/does/not/exist/libnvrtc.so"); });
}

TEST_CASE("a library that is not NVRTC is refused with the function it lacks") {
    check_refused(ErrorCode::nvrtc_not_found, {BACKLIGHT_FAKE_DRIVER_PATH, "nvrtcVersion"},
                  [] { const Nvrtc nvrtc(BACKLIGHT_FAKE_DRIVER_PATH); });
}

TEST_CASE("an NVRTC older than 12.8 is refused with its path and both versions") {
    check_refused(ErrorCode::nvrtc_too_old, {BACKLIGHT_FAKE_NVRTC_OLD_PATH, "12.4", "12.8"},
                  [] { const Nvrtc nvrtc(BACKLIGHT_FAKE_NVRTC_OLD_PATH); });
}

TEST_CASE("an NVRTC that does not know a target is refused for it, with those it knows") {
    const Nvrtc nvrtc(BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH);
    CHECK_NOTHROW(nvrtc.require_target(device::target_by_name("sm_90a")));
    check_refused(ErrorCode::nvrtc_too_old,
                  {nvrtc.path(), nvrtc.version(), "sm_120a", "80, 86, 89, 90", "newer"},
                  [&] { nvrtc.require_target(device::target_by_name("sm_120a")); });
}

TEST_CASE("the version of NVRTC is told with its build") {
    CHECK(Nvrtc(BACKLIGHT_FAKE_NVRTC_NO_BLACKWELL_PATH).version() == "12.8.99");
    const Nvrtc real(test::real_nvrtc_path());
    CHECK(std::regex_match(real.version(), std::regex(R"(\d+\.\d+\.\d+)")));
    CHECK(real.version().starts_with(std::to_string(real.major()) + "." +
                                     std::to_string(real.minor()) + "."));
    CHECK_FALSE(real.path().empty());
}

TEST_CASE(
    "the NVRTC of this machine compiles for both targets, and refuses one that is not there") {
    const Nvrtc nvrtc(test::real_nvrtc_path());
    CHECK_NOTHROW(nvrtc.require_target(device::target_by_name("sm_90a")));
    CHECK_NOTHROW(nvrtc.require_target(device::target_by_name("sm_120a")));
    check_refused(ErrorCode::nvrtc_too_old, {"sm_129a", nvrtc.version()},
                  [&] { nvrtc.require_target(device::target_by_name("sm_129a")); });
}

TEST_CASE("a program compiles with the headers it is given, to a cubin and to PTX") {
    const Nvrtc nvrtc(test::real_nvrtc_path());
    const std::vector<compiler::Header> headers = {{"answer.cuh", "constexpr int answer = 42;"}};
    const std::vector<std::string> options = {"--gpu-architecture=sm_90a", "--ptxas-options=-v",
                                              "--no-cache"};
    const compiler::CompileRequest request{
        .name = "answer.cu",
        .source =
            "#include \"answer.cuh\"\nextern \"C\" __global__ void f(int* p) { *p = answer; }",
        .headers = headers,
        .options = options};
    const auto result = nvrtc.compile(request);
    CHECK(result.cubin.size() > 100);
    CHECK(result.milliseconds > 0);
    CHECK(compiler::parse_resource_usage(result.log).registers > 0);
    CHECK(nvrtc.compile_to_ptx(request).find("42") != std::string::npos);
}

TEST_CASE("a program that does not compile is an error with path, version, options and the log") {
    const Nvrtc nvrtc(test::real_nvrtc_path());
    const std::vector<std::string> options = {"--gpu-architecture=sm_90a", "--std=c++17"};
    check_refused(ErrorCode::compile_failed,
                  {"broken.cu", nvrtc.path(), nvrtc.version(),
                   "--gpu-architecture=sm_90a --std=c++17", "undeclared_name", "error"},
                  [&] {
                      nvrtc.compile({.name = "broken.cu",
                                     .source = "__global__ void f() { undeclared_name(); }",
                                     .headers = {},
                                     .options = options});
                  });
}
