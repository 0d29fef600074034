// `inspect --counts`: with a stand-in for the disassembler, and with a real one where there is one.

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "backlight/error.hpp"
#include "command_test_support.hpp"
#include "disassembler.hpp"
#include "inspect.hpp"
#include "sass_listings.hpp"
#include "temporary_directory.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;
using test::command;
using test::contains;
using test::Environment;
using test::Outcome;

namespace {

constexpr const char* variable = "BACKLIGHT_DISASSEMBLER_PATH";

/// A program that prints, or does, what the shell script says.
std::string program(const std::filesystem::path& file, const std::string& script) {
    std::ofstream(file) << "#!/bin/sh\n" << script << '\n';
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file.string();
}

/// The listing, of the main kernel, and a function of one instruction for the other two.
std::string chain_listing() {
    std::string listing(test::labelled_listing);
    const std::string name = "some_kernel";
    for (std::size_t at = 0; (at = listing.find(name, at)) != std::string::npos;) {
        listing.replace(at, name.size(), "attention_backward_mma_resident");
    }
    return listing +
           ".text.attention_backward_delta:\n /*0000*/ EXIT ;\n"
           ".text.attention_backward_convert:\n /*0000*/ EXIT ;\n";
}

/// Nothing, after a message that skips the test, where this machine has none.
std::optional<Disassembler> real_disassembler() {
    try {
        return Disassembler();
    } catch (const Error&) {
        MESSAGE("skipped: there is no disassembler on this machine");
        return std::nullopt;
    }
}

std::vector<std::string> inspection(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"inspect",  "--target", "sm_120a",
                                          "--kernel", "v4",       "--counts"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
}

}  // namespace

TEST_CASE("counts without a disassembler are refused with what to do before anything compiles") {
    const Environment path("PATH", "/nonexistent");
    const Environment nvrtc("BACKLIGHT_NVRTC_PATH", "/nonexistent/libnvrtc.so");
    const Environment none(variable, std::nullopt);
    const Outcome outcome = command(inspection({}));
    CHECK(outcome.exit_code == 1);
    if (contains(outcome.errors, "nvrtc_not_found")) {
        MESSAGE("skipped: the CUDA toolkit's usual place has a disassembler");
        return;
    }
    CAPTURE(outcome.errors);
    for (const char* part : {"file_error", "no disassembler was found", "nvdisasm", "cuobjdump",
                             "--disassembler", variable, "/usr/local/cuda/bin"}) {
        CAPTURE(std::string(part));
        CHECK(contains(outcome.errors, part));
    }
}

TEST_CASE("a disassembler that was named and cannot be run is refused by its name") {
    const test::TemporaryDirectory directory;
    const auto no_program = directory.path() / "nvdisasm";
    std::ofstream(no_program) << "text";
    for (const std::string& file :
         {std::string("/nonexistent/nvdisasm"), no_program.string(), directory.path().string()}) {
        check_refused(ErrorCode::file_error,
                      {"disassembler is '" + file + "'", "must be the file of nvdisasm"},
                      [&] { Disassembler{file}; });
        const Environment named(variable, file);
        check_refused(ErrorCode::file_error, {variable, file}, [] { Disassembler{}; });
    }
}

TEST_CASE("the option counts for more than the variable and the variable for more than the PATH") {
    const test::TemporaryDirectory directory;
    const std::string on_path = program(directory.path() / "cuobjdump", "");
    const std::string first = program(directory.path() / "first", "");
    const std::string second = program(directory.path() / "second", "");
    const Environment path("PATH", directory.path().string());
    {
        const Environment named(variable, second);
        CHECK(Disassembler(first).path() == first);
        CHECK(Disassembler().path() == second);
    }
    const Environment none(variable, std::nullopt);
    CHECK(Disassembler().path() == on_path);
    const std::string better = program(directory.path() / "nvdisasm", "");
    CHECK(Disassembler().path() == better);
}

TEST_CASE("each disassembler is asked in its own way and one that fails is quoted") {
    const test::TemporaryDirectory directory;
    const std::vector<std::byte> cubin(3, std::byte{'x'});
    const std::string echo = "echo \"$1\"; cat \"$2\"";
    CHECK(Disassembler(program(directory.path() / "nvdisasm", echo)).listing(cubin) == "-c\nxxx");
    CHECK(Disassembler(program(directory.path() / "cuobjdump", echo)).listing(cubin) ==
          "--dump-sass\nxxx");
    const std::string fails = program(directory.path() / "fails", "echo unknown target; exit 3");
    check_refused(ErrorCode::file_error, {fails, "as new as NVRTC", "unknown target"},
                  [&] { Disassembler(fails).listing(cubin); });
}

TEST_CASE("inspect tells counts and bounds in text and in JSON and keeps its own report") {
    const test::TemporaryDirectory directory;
    const auto listing = directory.path() / "listing";
    std::ofstream(listing) << chain_listing();
    const std::string disassembler =
        program(directory.path() / "nvdisasm", "cat '" + listing.string() + "'");
    const Outcome text = command(inspection({"--disassembler", disassembler}));
    CAPTURE(text.errors);
    CAPTURE(text.out);
    REQUIRE(text.exit_code == 0);
    for (const char* part :
         {"registers", "sm_120a v4 attention_backward_delta: no loop with tensor instructions\n",
          "sm_120a v4 attention_backward_mma_resident: innermost loops with tensor instructions\n",
          "from, to address  0x0010, 0x0070  0x0080, 0x00b0\n",
          "\nLDSM                           1               0\n",
          "\ntensor cores                  32 (100 %)    32 (100 %)\n", "bound, 2 resident blocks",
          "512 FLOP a clock"}) {
        CAPTURE(std::string(part));
        CHECK(contains(text.out, part));
    }

    const Outcome out = command(inspection({"--disassembler", disassembler, "--json", "-"}));
    REQUIRE(out.exit_code == 0);
    const auto kernels = nlohmann::json::parse(out.out)["kernels"];
    CHECK(kernels[0]["counts"]["loops"].empty());
    const auto counts = kernels[1]["counts"];
    REQUIRE(counts["loops"].size() == 2);
    CHECK(counts["loops"][0]["instructions"]["HMMA"] == 1);
    CHECK(counts["loops"][0]["instructions"]["LDL/STL"] == 0);
    CHECK(counts["loops"][0]["all"] == 7);
    CHECK(counts["loops"][1]["first_address"] == 0x80);
    CHECK(counts["bounds"][1]["loops"] == nlohmann::json::array({2}));
    CHECK(counts["bounds"][1]["clocks"]["tensor_cores"] == 32);
    CHECK(counts["bounds"][1]["bound_by"] == "tensor cores");
}

TEST_CASE("without counts no disassembler is looked for and naming one is refused") {
    const Environment named(variable, "/nonexistent/nvdisasm");
    const Outcome outcome =
        command({"inspect", "--target", "sm_120a", "--kernel", "v2", "--json", "-"});
    REQUIRE(outcome.exit_code == 0);
    CHECK_FALSE(nlohmann::json::parse(outcome.out)["kernels"][1].contains("counts"));
    const Outcome refused = command({"inspect", "--disassembler", "/some/nvdisasm"});
    CHECK(refused.exit_code == 1);
    CHECK(contains(refused.errors, "disassembler is '/some/nvdisasm'"));
    CHECK(contains(refused.errors, "left out without --counts"));
}

TEST_CASE("the main loops of v4 on sm_120a are bound by tensor cores for 5120 clocks a tile") {
    const auto disassembler = real_disassembler();
    if (!disassembler) {
        return;
    }
    for (const bool causal : {false, true}) {
        CAPTURE(causal);
        InspectOptions options;
        options.targets = {"sm_120a"};
        options.kernels = {"v4"};
        options.causal = causal;
        options.counts = true;
        const auto inspections = inspect_kernels(options);
        const CountedKernel& counted = inspections.at(0).main().counted.value();
        // With a mask, tiles on the diagonal have a loop of their own.
        REQUIRE(counted.loops.size() == (causal ? 2 : 1));
        for (std::size_t i = 0; i < counted.loops.size(); ++i) {
            const SassCounts& counts = counted.loops[i].counts;
            CHECK(counts.of(SassClass::hmma) == 160);
            CHECK(counts.of(SassClass::ldsm) == 88);
            CHECK(counts.of(SassClass::stsm) == 2);
            CHECK(counts.of(SassClass::reduction) == 8);
            CHECK(counts.of(SassClass::mufu) == 16);
            CHECK(counts.of(SassClass::bar) == 0);
            CHECK(counts.of(SassClass::spill) == 0);
            CHECK(counted.bounds[i].tiles == doctest::Approx(1));
            CHECK(counted.bounds[i].clocks.tensor_cores.value_or(0) == 5120);
            CHECK(counted.bounds[i].clocks.bounding_unit() == "tensor cores");
        }
    }
}

TEST_CASE("a step of wgmma without a mask is one tile of 2560 tensor clocks") {
    const auto disassembler = real_disassembler();
    if (!disassembler) {
        return;
    }
    InspectOptions options;
    options.targets = {"sm_90a"};
    options.kernels = {"wgmma"};
    options.counts = true;
    const auto inspections = inspect_kernels(options);
    const CountedKernel& counted = inspections.at(0).main().counted.value();
    REQUIRE(counted.loops.size() == 2);
    REQUIRE(counted.bounds.size() == 3);
    CHECK(counted.bounds[2].tiles == doctest::Approx(1));
    CHECK(counted.bounds[2].clocks.tensor_cores.value_or(0) == 2560);
}
