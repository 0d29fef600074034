// A program that a test starts and waits for. Of the project it includes nothing, so that every
// suite can include it.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace backlight::test {

struct Ended {
    /// -1: a signal ended it.
    int code;
    /// Standard output and errors, as they came.
    std::string output;
};

/// Runs a program with one argument.
inline Ended run_program(const std::string& program, const std::string& argument) {
    const std::string command = "'" + program + "' '" + argument + "' 2>&1";
    // Without exec, a shell would tell of a signal by an exit code.
    FILE* const pipe = ::popen(("exec " + command).c_str(), "r");
    REQUIRE(pipe != nullptr);
    Ended ended{.code = -1, .output = {}};
    std::array<char, 4096> part{};
    while (const std::size_t count = std::fread(part.data(), 1, part.size(), pipe)) {
        ended.output.append(part.data(), count);
    }
    const int status = ::pclose(pipe);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
}

}  // namespace backlight::test
