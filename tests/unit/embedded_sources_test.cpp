#include "compiler/embedded_sources.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

using backlight::compiler::embedded_sources;
using backlight::compiler::EmbeddedSource;

const std::filesystem::path sources_dir = BACKLIGHT_KERNEL_SOURCES_DIR;

std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE_MESSAGE(file.good(), path.string());
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_kernel_source(const std::filesystem::path& path) {
    const std::filesystem::path extension = path.extension();
    return extension == ".cu" || extension == ".cuh" || extension == ".h";
}

}  // namespace

TEST_CASE("every embedded kernel source equals its file byte for byte") {
    REQUIRE_FALSE(embedded_sources().empty());
    for (const EmbeddedSource& source : embedded_sources()) {
        CAPTURE(source.name);
        // Not CHECK(a == b), which would print both files.
        const bool equal = source.text == read_file(sources_dir / source.name);
        CHECK(equal);
    }
}

TEST_CASE("every file of kernel_sources is embedded once and sorted by name") {
    std::vector<std::string> expected;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(sources_dir)) {
        if (entry.is_regular_file() && is_kernel_source(entry.path())) {
            expected.push_back(entry.path().lexically_relative(sources_dir).generic_string());
        }
    }
    std::sort(expected.begin(), expected.end());
    std::vector<std::string> embedded;
    for (const EmbeddedSource& source : embedded_sources()) {
        embedded.emplace_back(source.name);
    }
    CHECK(embedded == expected);
}
