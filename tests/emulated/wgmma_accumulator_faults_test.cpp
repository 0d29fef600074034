// The wgmma kernel's accumulator of dQ, whose places several heads use one after another.
#include <vector>

#include "accumulator_faults.hpp"
#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace wgmma_edits;
using enum FaultKind;

TEST_CASE("wgmma: heads that share a place of the accumulator match fp64 under any schedule") {
    require_right_with_three_places({"wgmma", 1});
}

TEST_CASE("wgmma: a place of the accumulator that is taken too early or unclean is found") {
    const std::vector<AccumulatorFault> faults = {
        {"converted before it is complete",
         edit("kernel::wait_until_added(arguments_, conversion.batch_head);", ";"),
         {}},
        {"added before the zeros",
         edit("adds && wait_for_place(arguments, tile.batch_head)", "false"),
         {}},
        {"added before the zeros of the head before",
         edit("batch_head - places_of(arguments)", "batch_head - places_of(arguments) - 1"),
         {}},
        {"zeros told of before they are complete",
         edit("bulk_wait<0>();\n            count_global(arguments_.counters.converted",
              "bulk_wait_read<0>();\n            count_global(arguments_.counters.converted"),
         {}},
        {"a sum told of before it is complete",
         edit("bulk_wait<0>();\n        count_global(deterministic",
              "bulk_wait_read<0>();\n        count_global(deterministic"),
         {}},
        {"no zeros in the third place before the first head",
         {"attention_backward_delta.cu", "batch_head >= arguments.accumulator_heads",
          "batch_head >= 2"},
         {}},
        {"zeros not made for the last head",
         edit("batch_head + places_of(arguments) < arguments.batch_heads",
              "batch_head + places_of(arguments) + 1 < arguments.batch_heads"),
         {deadlock}},
        {"no zeros", dropped("zero(half);"), {}},
        {"zeros of half a place",
         edit("shared_.zeros(), zeros_bytes);", "shared_.zeros(), zeros_bytes / 2);"),
         {}},
        {"zeros of another place", edit("bulk_store(half + i,", "bulk_store(half,"), {}},
        {"no zeros to store", dropped("        store_zeros();\n"), {uninitialised_read}},
        {"zeros that the asynchronous proxy does not see",
         edit("float4{0, 0, 0, 0});\n        }\n        fence_shared_before_async_proxy();",
              "float4{0, 0, 0, 0});\n        }"),
         {missing_proxy_fence}},
        {"nobody told",
         dropped("count_global(arguments_.counters.converted + conversion.batch_head);"),
         {deadlock}},
    };
    require_found_with_three_places({"wgmma", 1}, faults);
}

TEST_CASE("wgmma: a counter that keeps what the run before has counted is found") {
    require_counters_are_reset({"wgmma", 1});
}

}  // namespace

}  // namespace backlight::test
