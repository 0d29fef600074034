#include "emulation/host_compiler_path.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

namespace backlight::emulation {

namespace {

std::string environment(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
}

bool is_program(const std::filesystem::path& path) {
    std::error_code failure;
    return std::filesystem::is_regular_file(path, failure) && ::access(path.c_str(), X_OK) == 0;
}

/// The program of that name or path.
std::optional<std::filesystem::path> find_program(const std::string& name) {
    if (name.find('/') != std::string::npos) {
        return is_program(name) ? std::optional<std::filesystem::path>(name) : std::nullopt;
    }
    const std::string folders = environment("PATH");
    std::string_view rest = folders;
    while (!name.empty() && !rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        // An empty entry of PATH is the current folder.
        const std::filesystem::path folder = end == 0 ? "." : rest.substr(0, end);
        if (is_program(folder / name)) {
            return folder / name;
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::filesystem::path> find_host_compiler() {
    if (const std::string asked = environment("BACKLIGHT_CXX"); !asked.empty()) {
        return find_program(asked);
    }
    for (const std::string& name :
         {environment("CXX"), std::string("c++"), std::string("g++"), std::string("clang++")}) {
        if (auto found = find_program(name)) {
            return found;
        }
    }
    return std::nullopt;
}

}  // namespace backlight::emulation
