#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "compiler/kernel_store.hpp"
#include "test_support.hpp"
#include "variants.hpp"

using namespace backlight;

namespace {

/// Compiles every kernel that the conformance tests run on a device of that target.
void compile_all(const char* target_name) {
    compiler::KernelStore store({.nvrtc_path = test::real_nvrtc_path(), .cache_directory = {}});
    const device::Target target = device::target_by_name(target_name);
    for (const conformance::Variant& variant : conformance::all_variants(target)) {
        CAPTURE(variant.entry);
        CAPTURE(variant.constants);
        const auto compiled = store.get(conformance::request_of(variant, target));
        CHECK(compiled.kernel->resources.registers > 0);
        CHECK(compiled.kernel->resources.spill_store_bytes == 0);
    }
    CHECK(store.compiles() == conformance::all_variants(target).size());
}

}  // namespace

TEST_CASE("every conformance kernel compiles for Hopper without spills") {
    compile_all("sm_90a");
}

TEST_CASE("every conformance kernel without wgmma compiles for Blackwell") {
    compile_all("sm_120a");
}

TEST_CASE("every primitive with an instruction has an emulated twin") {
    const std::filesystem::path sources = BACKLIGHT_KERNEL_SOURCES_DIR;
    const std::filesystem::path twins =
        sources.parent_path() / "runtime/src/emulation/device_headers/primitives";
    const std::regex instruction(R"(\basm(\s+volatile)?\(\s*"[a-z{])");
    std::size_t with_instructions = 0;
    for (const auto& entry : std::filesystem::directory_iterator(sources / "primitives")) {
        std::ifstream file(entry.path());
        const std::string text{std::istreambuf_iterator<char>(file),
                               std::istreambuf_iterator<char>()};
        if (std::regex_search(text, instruction)) {
            ++with_instructions;
            CHECK_MESSAGE(std::filesystem::exists(twins / entry.path().filename()),
                          entry.path().filename().string());
        }
    }
    CHECK(with_instructions > 10);
}
