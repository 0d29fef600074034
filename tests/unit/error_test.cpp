#include "backlight/error.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

using backlight::Error;
using backlight::ErrorCode;

TEST_CASE("the numbers and names of error codes are fixed: other languages rely on them") {
    const std::pair<int, const char*> expected[] = {
        {1, "invalid_argument"},
        {2, "unsupported"},
        {3, "workspace_too_small"},
        {4, "unknown_kernel"},
        {5, "shared_memory_exceeded"},
        {10, "driver_not_found"},
        {11, "driver_failed"},
        {12, "device_not_found"},
        {13, "unsupported_device"},
        {14, "capture_active"},
        {20, "nvrtc_not_found"},
        {21, "nvrtc_too_old"},
        {22, "compile_failed"},
        {23, "compile_forbidden"},
        {30, "file_error"},
        {40, "kernel_fault"},
        {41, "host_compiler_not_found"},
    };
    for (const auto& [number, name] : expected) {
        CHECK(to_string(static_cast<ErrorCode>(number)) == std::string(name));
    }
}

TEST_CASE("a number that is no error code has the name unknown") {
    CHECK(to_string(static_cast<ErrorCode>(99)) == std::string("unknown"));
}

TEST_CASE("an error keeps its code and message") {
    const Error error(ErrorCode::file_error, "file is x: it must be y");
    CHECK(error.code() == ErrorCode::file_error);
    CHECK(error.what() == std::string("file is x: it must be y"));
}
