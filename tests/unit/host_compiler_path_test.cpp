// Which compiler the emulated device takes.

#include "emulation/host_compiler_path.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "test_support.hpp"

using backlight::emulation::find_host_compiler;
using backlight::test::Environment;

namespace {

/// An empty file in the folder, a program or not.
std::string make_file(const std::filesystem::path& folder, const char* name, bool program = true) {
    const std::filesystem::path path = folder / name;
    std::ofstream(path).close();
    std::filesystem::permissions(
        path, program ? std::filesystem::perms::owner_all : std::filesystem::perms::owner_read);
    return path.string();
}

}  // namespace

TEST_CASE("the host compiler is the first of c++ g++ and clang++ that is a program on PATH") {
    const backlight::test::TemporaryDirectory first;
    const backlight::test::TemporaryDirectory second;
    const Environment asked("BACKLIGHT_CXX", std::nullopt);
    const Environment usual("CXX", std::nullopt);
    const Environment path("PATH", first.path().string() + "::" + second.path().string());
    CHECK_FALSE(find_host_compiler().has_value());
    const std::string clang = make_file(first.path(), "clang++");
    CHECK(find_host_compiler() == clang);
    const std::string gcc = make_file(second.path(), "g++");
    CHECK(find_host_compiler() == gcc);
    make_file(first.path(), "c++", false);
    CHECK(find_host_compiler() == gcc);
    std::filesystem::create_directory(second.path() / "c++");
    CHECK(find_host_compiler() == gcc);
}

TEST_CASE("BACKLIGHT_CXX counts for more than CXX and CXX for more than the usual names") {
    const backlight::test::TemporaryDirectory folder;
    const std::string usual = make_file(folder.path(), "c++");
    const std::string own = make_file(folder.path(), "own++");
    const std::string other = make_file(folder.path(), "other++");
    const Environment path("PATH", folder.path().string());
    {
        const Environment asked("BACKLIGHT_CXX", std::nullopt);
        const Environment builds("CXX", "other++");
        CHECK(find_host_compiler() == other);
    }
    const Environment asked("BACKLIGHT_CXX", own);
    const Environment builds("CXX", other);
    CHECK(find_host_compiler() == own);
}

TEST_CASE("a BACKLIGHT_CXX that is no program gives none and such a CXX is passed over") {
    const backlight::test::TemporaryDirectory folder;
    const std::string usual = make_file(folder.path(), "c++");
    const Environment path("PATH", folder.path().string());
    const Environment builds("CXX", "/nonexistent/g++ -m64");
    {
        const Environment asked("BACKLIGHT_CXX", "");
        CHECK(find_host_compiler() == usual);
    }
    const Environment asked("BACKLIGHT_CXX", "/nonexistent/g++");
    CHECK_FALSE(find_host_compiler().has_value());
}
