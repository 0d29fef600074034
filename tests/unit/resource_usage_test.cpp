#include "compiler/resource_usage.hpp"

#include <string>
#include <string_view>

#include "test_support.hpp"

using backlight::ErrorCode;
using backlight::compiler::parse_resource_usage;
using backlight::compiler::ResourceUsage;

namespace {

constexpr std::string_view log_with_spills =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'attention_backward_mma' for 'sm_120a'\n"
    "ptxas info    : Function properties for attention_backward_mma\n"
    "    64 bytes stack frame, 60 bytes spill stores, 72 bytes spill loads\n"
    "ptxas info    : Used 128 registers, used 1 barriers, 64 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 153.012 ms\n";

constexpr std::string_view log_with_shared_memory =
    "ptxas info    : Function properties for attention_backward_delta\n"
    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 0 barriers, 1024 bytes smem, 400 bytes cmem[0]\n";

}  // namespace

TEST_CASE("registers, stack and spills are read from the log of ptxas") {
    CHECK(parse_resource_usage(log_with_spills) == ResourceUsage{.registers = 128,
                                                                 .stack_bytes = 64,
                                                                 .spill_store_bytes = 60,
                                                                 .spill_load_bytes = 72,
                                                                 .static_shared_bytes = 0});
}

TEST_CASE("messages C75xx of ptxas are performance warnings and no other line is") {
    const std::string told =
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources\n" +
        std::string(log_with_spills) +
        "ptxas info    : (C7508) setmaxnreg ignored to maintain minimum register requirements.\n"
        "ptxas info    : (C8001) something else\nptxas info    : (C7519) cut short";
    const ResourceUsage usage = parse_resource_usage(told);
    CHECK(usage.registers == 128);
    CHECK(usage.performance_warnings ==
          std::vector<std::string>{
              "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due "
              "to insufficient register resources",
              "(C7508) setmaxnreg ignored to maintain minimum register requirements.",
              "(C7519) cut short"});
    CHECK(parse_resource_usage(log_with_spills).performance_warnings.empty());
}

TEST_CASE("static shared memory is read where there is some") {
    CHECK(parse_resource_usage(log_with_shared_memory) ==
          ResourceUsage{.registers = 32, .static_shared_bytes = 1024});
}

TEST_CASE(
    "a log without the lines of ptxas is an error that shows the log, not a kernel without "
    "spills") {
    for (const std::string_view log :
         {std::string_view{}, std::string_view{"ptxas info : nothing to report\n"},
          std::string_view{"registers"}, std::string_view{"Used many registers"}}) {
        backlight::test::check_refused(ErrorCode::compile_failed, {"registers", log},
                                       [&] { parse_resource_usage(log); });
    }
    backlight::test::check_refused(
        ErrorCode::compile_failed, {"bytes stack frame", "Used 40 registers"},
        [] { parse_resource_usage("ptxas info : Used 40 registers, used 1 barriers"); });
    backlight::test::check_refused(ErrorCode::compile_failed, {"bytes spill stores"}, [] {
        parse_resource_usage("Used 40 registers\n 0 bytes stack frame\n");
    });
}

TEST_CASE("a number that no int holds is an error") {
    backlight::test::check_refused(ErrorCode::compile_failed, {"registers"}, [] {
        parse_resource_usage(
            "Used 99999999999999999999 registers\n 0 bytes stack frame, 0 bytes "
            "spill stores, 0 bytes spill loads");
    });
}
