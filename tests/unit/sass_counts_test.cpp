// From the text of a disassembly to the counts of its loops and the bound that follows.

#include "sass_counts.hpp"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "counted_loops.hpp"
#include "loop_bound.hpp"
#include "sass_listing.hpp"
#include "sass_listings.hpp"
#include "sass_loops.hpp"
#include "test_support.hpp"

using namespace backlight;
using namespace backlight::tool;
using test::check_refused;

namespace {

SassInstruction instruction(std::string opcode, std::string operands = {}) {
    return {.opcode = std::move(opcode), .operands = std::move(operands)};
}

SassFunction only_function(std::string_view listing) {
    const auto functions = parse_sass(listing);
    REQUIRE(functions.size() == 1);
    return functions.front();
}

/// What the unmasked loop of v4 has a warp do.
SassCounts resident_counts() {
    SassCounts counts;
    counts.instructions = 537;
    counts.hmma_flops = 160 * 4096.0;
    counts.shared_clocks = 376;
    counts.of_class[static_cast<std::size_t>(SassClass::mufu)] = 16;
    return counts;
}

}  // namespace

TEST_CASE("instructions of a listing have address guard opcode operands and the place they go to") {
    const SassFunction function = only_function(test::labelled_listing);
    CHECK(function.name == "some_kernel");
    REQUIRE(function.instructions.size() == 21);
    const SassInstruction& wait = function.instructions[2];
    CHECK(wait.address == 0x20);
    CHECK(wait.guarded);
    CHECK(wait.opcode == "BRA");
    CHECK(wait.name() == "BRA");
    CHECK(wait.target == 13);
    const SassInstruction& product = function.instructions[4];
    CHECK_FALSE(product.guarded);
    CHECK(product.opcode == "HMMA.16816.F32.BF16");
    CHECK(product.name() == "HMMA");
    CHECK(product.operands == "R8, R4, R6, R8");
    CHECK_FALSE(product.target.has_value());
    CHECK(function.instructions.back().opcode == "NOP");
}

TEST_CASE("a listing with addresses for labels and encodings beside it reads the same") {
    const SassFunction labelled = only_function(test::labelled_listing);
    const SassFunction addressed = only_function(test::addressed_listing());
    CHECK(addressed.name == labelled.name);
    REQUIRE(addressed.instructions.size() == labelled.instructions.size());
    for (std::size_t i = 0; i < labelled.instructions.size(); ++i) {
        CAPTURE(i);
        CHECK(addressed.instructions[i].address == labelled.instructions[i].address);
        CHECK(addressed.instructions[i].opcode == labelled.instructions[i].opcode);
        CHECK(addressed.instructions[i].guarded == labelled.instructions[i].guarded);
        CHECK(addressed.instructions[i].target == labelled.instructions[i].target);
    }
}

TEST_CASE("functions of one listing are kept apart and what has no instructions is none") {
    const auto functions = parse_sass(
        ".text.first:\n /*0000*/ NOP ;\n.text.empty:\n.text.second:\n"
        ".L_x_0:\n /*0000*/ BRA `(.L_x_0) ;\n");
    REQUIRE(functions.size() == 2);
    CHECK(functions[0].name == "first");
    CHECK(functions[1].name == "second");
    CHECK(functions[1].instructions[0].target == 0);
    CHECK(parse_sass("").empty());
    CHECK(parse_sass("nvdisasm fatal : no such file\n").empty());
}

TEST_CASE("loops are the innermost with products and code out of line that jumps back is none") {
    const SassFunction function = only_function(test::labelled_listing);
    const auto loops = tensor_loops(function);
    REQUIRE(loops.size() == 2);
    CHECK(loops[0].first == 1);
    CHECK(loops[0].last == 7);
    CHECK(loops[1].first == 8);
    CHECK(loops[1].last == 11);
    CHECK(loops[0].instructions(function).size() == 7);
    CHECK(loops[0].register_change.empty());
}

TEST_CASE("a loop with several branches back to its beginning reaches to the last of them") {
    const SassFunction function = only_function(
        ".text.k:\n.L_x_0:\n /*0000*/ HMMA.16816.F32 R0, R0, R0, R0 ;\n"
        " /*0010*/ @P0 BRA `(.L_x_0) ;\n /*0020*/ NOP ;\n /*0030*/ @P1 BRA `(.L_x_0) ;\n"
        " /*0040*/ EXIT ;\n");
    const auto loops = tensor_loops(function);
    REQUIRE(loops.size() == 1);
    CHECK(loops[0].last == 3);
}

TEST_CASE("a loop knows the change of registers that every way to it passes") {
    const SassFunction function = only_function(
        ".text.k:\n /*0000*/ @P0 BRA `(.L_x_1) ;\n /*0010*/ USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xd0 "
        ";\n.L_x_0:\n /*0020*/ HGMMA.64x64x16.F32.BF16 R0, gdesc[UR4], R0 ;\n"
        " /*0030*/ @P1 BRA `(.L_x_0) ;\n /*0040*/ EXIT ;\n.L_x_1:\n"
        " /*0050*/ USETMAXREG.DEALLOC.CTAPOOL 0x40 ;\n.L_x_2:\n"
        " /*0060*/ HGMMA.64x64x16.F32.BF16 R0, gdesc[UR4], R0 ;\n /*0070*/ @P1 BRA `(.L_x_2) ;\n"
        " /*0080*/ EXIT ;\n");
    const auto loops = tensor_loops(function);
    REQUIRE(loops.size() == 2);
    CHECK(loops[0].register_change == "USETMAXREG.TRY_ALLOC.CTAPOOL");
    CHECK(loops[1].register_change == "USETMAXREG.DEALLOC.CTAPOOL");
}

TEST_CASE("every instruction is of one class by its whole name") {
    struct Case {
        const char* opcode;
        SassClass expected;
    };
    for (const Case& one : {Case{"HMMA.16816.F32.BF16", SassClass::hmma},
                            Case{"HGMMA.64x64x16.F32", SassClass::hgmma},
                            Case{"LDSM.16.MT88.4", SassClass::ldsm},
                            Case{"STSM.16.M88.4", SassClass::stsm},
                            Case{"LDS.128", SassClass::lds},
                            Case{"STS", SassClass::sts},
                            Case{"LDG.E.64", SassClass::ldg},
                            Case{"STG.E", SassClass::stg},
                            Case{"RED.E.ADD.F32", SassClass::reduction},
                            Case{"REDG.E.ADD.F32x4", SassClass::reduction},
                            Case{"ATOMS.ADD", SassClass::reduction},
                            Case{"UTMALDG.4D", SassClass::bulk_copy},
                            Case{"UBLKCP.S.G", SassClass::bulk_copy},
                            Case{"BAR.SYNC.DEFER_BLOCKING", SassClass::bar},
                            Case{"SYNCS.ARRIVE.TRANS64", SassClass::syncs},
                            Case{"MUFU.EX2", SassClass::mufu},
                            Case{"FFMA.FTZ", SassClass::fp32},
                            Case{"FADD2", SassClass::fp32},
                            Case{"FMUL", SassClass::fp32},
                            Case{"F2FP.BF16.F32.PACK_AB", SassClass::f2fp},
                            Case{"LDL.LU", SassClass::spill},
                            Case{"STL.64", SassClass::spill},
                            Case{"NOP", SassClass::nop},
                            Case{"REDUX", SassClass::other},
                            Case{"LDSX", SassClass::other},
                            Case{"IMAD.WIDE", SassClass::other}}) {
        CAPTURE(std::string(one.opcode));
        CHECK(class_of(instruction(one.opcode)) == one.expected);
    }
}

TEST_CASE("shared memory takes a clock for 128 bytes of a warp") {
    CHECK(shared_clocks(instruction("LDSM.16.M88.4")) == 4);
    CHECK(shared_clocks(instruction("LDSM.16.MT88.2")) == 2);
    CHECK(shared_clocks(instruction("LDSM.16.M88")) == 1);
    CHECK(shared_clocks(instruction("STSM.16.M88.4")) == 4);
    CHECK(shared_clocks(instruction("LDS.128")) == 4);
    CHECK(shared_clocks(instruction("STS.64")) == 2);
    CHECK(shared_clocks(instruction("LDS")) == 1);
    CHECK(shared_clocks(instruction("LDG.E.128")) == 0);
    CHECK(shared_clocks(instruction("HMMA.16816.F32")) == 0);
}

TEST_CASE("of an HGMMA the warpgroup reads B from shared memory and A unless it is in registers") {
    // For four warps 16 clocks of B and 16 of A; 32 of B.
    const SassInstruction both = instruction("HGMMA.64x64x16.F32.BF16", "R0, gdesc[UR4], R0");
    const SassInstruction registers =
        instruction("HGMMA.64x128x16.F32", "R0, R64, gdesc[UR4].tnspB, R0, gsb0");
    CHECK(4 * shared_clocks(both) == 32);
    CHECK(4 * shared_clocks(registers) == 32);
    CHECK(4 * hgmma_flops(both) == 2 * 64 * 64 * 16);
    CHECK(4 * hgmma_flops(registers) == 2 * 64 * 128 * 16);
    CHECK(hmma_flops(both) == 0);
    CHECK(hgmma_flops(instruction("NOP")) == 0);
}

TEST_CASE("a product of a shape that is not known is refused by its name") {
    CHECK(hmma_flops(instruction("HMMA.16816.F32")) == 4096);
    CHECK(hmma_flops(instruction("HMMA.1688.F32")) == 2048);
    for (const char* opcode :
         {"HMMA.884.F32", "HGMMA.64x64x8.F32.TF32", "HGMMA", "HGMMA.64xx16", "HGMMA.64x8x160"}) {
        check_refused(ErrorCode::unsupported, {opcode, "16816", "64x<n>x16"},
                      [&] { count(std::vector{instruction(opcode)}); });
    }
}

TEST_CASE("counts of a loop are those of its instructions") {
    const SassFunction function = only_function(test::labelled_listing);
    const SassCounts counts = count(tensor_loops(function)[0].instructions(function));
    CHECK(counts.instructions == 7);
    CHECK(counts.of(SassClass::hmma) == 1);
    CHECK(counts.of(SassClass::ldsm) == 1);
    CHECK(counts.of(SassClass::syncs) == 1);
    CHECK(counts.of(SassClass::mufu) == 1);
    CHECK(counts.of(SassClass::other) == 3);
    CHECK(counts.hmma_flops == 4096);
    CHECK(counts.shared_clocks == 4);
}

TEST_CASE("four warps of v4 keep an RTX 5090's tensor cores busy for 5120 clocks a tile") {
    const BusyClocks clocks = busy_clocks(resident_counts(), 4, device::target_by_name("sm_120a"));
    REQUIRE(clocks.tensor_cores.has_value());
    CHECK(*clocks.tensor_cores == 5120);
    CHECK(clocks.issue_slots == 537);
    CHECK(clocks.shared_memory == 1504);
    CHECK(clocks.mufu == 128);
    CHECK(clocks.bound() == 5120);
    CHECK(clocks.bounding_unit() == "tensor cores");
}

TEST_CASE("the same loop is bound by shared memory on Hopper") {
    const BusyClocks clocks = busy_clocks(resident_counts(), 4, device::target_by_name("sm_90a"));
    REQUIRE(clocks.tensor_cores.has_value());
    CHECK(*clocks.tensor_cores == doctest::Approx(160 * 6.08));
    CHECK(clocks.bounding_unit() == "shared memory");
    CHECK(clocks.bound() == 1504);
}

TEST_CASE(
    "a product of a warpgroup takes the tensor cores of Hopper half as many clocks as it has "
    "columns") {
    SassCounts counts;
    counts.hgmma_flops = hgmma_flops(instruction("HGMMA.64x128x16.F32", "R0, R64, gdesc[UR4], R0"));
    const BusyClocks clocks = busy_clocks(counts, 4, device::target_by_name("sm_90a"));
    CHECK(clocks.tensor_cores.value_or(0) == 64);
    CHECK_FALSE(busy_clocks(counts, 4, device::target_by_name("sm_120a")).tensor_cores.has_value());
}

TEST_CASE("where the tensor cores' rate is not known the bound is of what is known") {
    const device::Target target = device::target_by_name("sm_100a");
    const BusyClocks clocks = busy_clocks(resident_counts(), 4, target);
    CHECK_FALSE(clocks.tensor_cores.has_value());
    CHECK(clocks.bounding_unit() == "shared memory");
    CHECK_FALSE((clocks + clocks).tensor_cores.has_value());
    CHECK((clocks + clocks).issue_slots == 2 * 537);
    CHECK(tensor_rate_source(target) == "no rate is known for this target");
}

TEST_CASE("loops that different warps run have bounds of their own and one together") {
    const std::string listing =
        ".text.k:\n /*0000*/ @P0 BRA `(.L_x_1) ;\n /*0010*/ USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xd0 "
        ";\n.L_x_0:\n /*0020*/ HGMMA.64x64x16.F32.BF16 R0, gdesc[UR4], R0 ;\n"
        " /*0030*/ @P1 BRA `(.L_x_0) ;\n /*0040*/ EXIT ;\n.L_x_1:\n"
        " /*0050*/ USETMAXREG.DEALLOC.CTAPOOL 0x40 ;\n.L_x_2:\n"
        " /*0060*/ HGMMA.64x64x16.F32.BF16 R0, gdesc[UR4], R0 ;\n /*0070*/ @P1 BRA `(.L_x_2) ;\n"
        " /*0080*/ EXIT ;\n";
    const AttentionProblem problem{.head_dim = 128};
    const CountedKernel kernel = count_kernel(listing, "k", problem, kernel_preset("wgmma"),
                                              device::target_by_name("sm_90a"));
    REQUIRE(kernel.loops.size() == 2);
    CHECK(kernel.loops[0].warps == 8);
    CHECK(kernel.loops[1].warps == 4);
    CHECK(kernel.loops[1].first_address == 0x60);
    CHECK(kernel.loops[1].last_address == 0x70);
    REQUIRE(kernel.bounds.size() == 3);
    CHECK(kernel.bounds[0].clocks.tensor_cores.value_or(0) == 64);
    CHECK(kernel.bounds[1].clocks.tensor_cores.value_or(0) == 32);
    CHECK(kernel.bounds[2].loops == std::vector<std::size_t>{0, 1});
    CHECK(kernel.bounds[2].clocks.tensor_cores.value_or(0) == 96);
    CHECK(kernel.bounds[2].clocks.issue_slots == 6);
    // 12 warps' products of 80 that a tile of 64 x 128 has.
    CHECK(kernel.bounds[2].tiles == doctest::Approx(3.0 * 64 * 64 * 16 / (5.0 * 64 * 128 * 128)));

    check_refused(ErrorCode::file_error, {"no function other"}, [&] {
        count_kernel(listing, "other", problem, kernel_preset("wgmma"),
                     device::target_by_name("sm_90a"));
    });
}
