// Plain accesses beyond what there is, which AddressSanitizer finds in kernels as in any program.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "child_process.hpp"
#include "compiler/sources.hpp"

namespace backlight::test {

namespace {

Ended run_scenario(const std::string& name) {
    return run_program(BACKLIGHT_EMULATED_ASAN_TESTS, name);
}

void require_found(const std::string& scenario, const std::vector<std::string>& report) {
    const Ended ended = run_scenario(scenario);
    CHECK(ended.code != 0);
    for (const std::string& part : report) {
        CHECK_MESSAGE(ended.output.find(part) != std::string::npos,
                      part << " in: " << ended.output);
    }
}

/// "attention_backward_delta.cu:87": the line on which the text begins.
std::string site_of(std::string_view file, std::string_view text) {
    const std::string_view source = compiler::source_text(file);
    const std::size_t at = source.find(text);
    REQUIRE_MESSAGE(at != std::string_view::npos, text);
    return fmt::format("{}:{}", file, std::ranges::count(source.substr(0, at), '\n') + 1);
}

TEST_CASE("the unchanged kernels have no finding of AddressSanitizer") {
    for (const char* scenario : {"unchanged", "last_shared_words"}) {
        const Ended ended = run_scenario(scenario);
        CHECK_MESSAGE(ended.code == 0, ended.output);
        CHECK(ended.output == "finished\n");
    }
}

TEST_CASE("a read beyond the end of a tensor is found by AddressSanitizer") {
    require_found(
        "delta_reads_beyond_lse",
        {"AddressSanitizer: heap-buffer-overflow", "READ of size 4", "is located 0 bytes",
         site_of("attention_backward_delta.cu",
                 "row < (packed ? packed_block.seqlen_q : arguments.seqlen_q) ? lse[row] :")});
}

TEST_CASE("a write of a row beyond the end of a tensor is found by AddressSanitizer") {
    require_found("main_writes_beyond_d_k",
                  {"AddressSanitizer: heap-buffer-overflow", "WRITE of size 4",
                   site_of("attention_backward_mma.cu",
                           "*reinterpret_cast<uint32_t*>(d_k_row + fragment * mma_n) =")});
}

TEST_CASE("a plain read beyond the shared memory of a block is found by AddressSanitizer") {
    require_found("a_word_beyond_shared_memory",
                  {"AddressSanitizer: use-after-poison", "READ of size 4", "read_words.cu:11"});
}

}  // namespace

}  // namespace backlight::test
