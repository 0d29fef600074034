// The accumulator of dQ of the register-resident mma kernel where its blocks convert dQ: its places
// are used by several heads one after another.
#include <string>
#include <utility>
#include <vector>

#include "accumulator_faults.hpp"
#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace mma_resident_edits;
using enum FaultKind;

/// Host threads of blocks where it is the order among them that is wrong.
constexpr int side_by_side = 6;

TEST_CASE("v5: heads that share a place of the accumulator match fp64 under any schedule") {
    require_right_with_three_places({"v5", 2});
}

TEST_CASE("v5: a place of the accumulator that is taken too early or unclean is found") {
    const std::vector<AccumulatorFault> faults = {
        {"converted before it is complete",
         edit("kernel::wait_until_added(arguments_, conversion.batch_head);", ";"),
         {},
         side_by_side},
        {"added before the zeros",
         edit("wait_for_place(arguments_, key_tile_.batch_head);", ";"),
         {},
         side_by_side},
        {"added before the zeros of the head before",
         edit("batch_head - places_of(arguments)", "batch_head - places_of(arguments) - 1"),
         {},
         side_by_side},
        {"a sum told of before all warps have added",
         edit("if constexpr (converts_d_q) {\n            __syncthreads();\n            if (warp_",
              "if constexpr (converts_d_q) {\n            if (warp_"),
         {},
         side_by_side},
        {"no zeros in the third place before the first head",
         {"attention_backward_delta.cu", "batch_head >= arguments.accumulator_heads",
          "batch_head >= 2"},
         {}},
        {"zeros not made for the last head",
         edit("batch_head + places_of(arguments) < arguments.batch_heads",
              "batch_head + places_of(arguments) + 1 < arguments.batch_heads"),
         {deadlock}},
        {"no zeros", edit("zero_piece(rows_.source(accumulator, at));", ";"), {}},
        {"zeros of a part of a piece",
         edit("reinterpret_cast<float4*>(accumulator)[i] =",
              "reinterpret_cast<float4*>(accumulator)[i / 2] ="),
         {}},
        {"nobody told",
         edit("count_global(arguments_.counters.converted + conversion.batch_head);", ";"),
         {deadlock}},
        {"no sum told of",
         edit("count_global(arguments_.counters.added + key_tile_.batch_head);", ";"),
         {deadlock}},
        {"a ticket that is read before it is drawn",
         edit("    }\n    __syncthreads();\n\n    const int ticket",
              "    }\n\n    const int ticket"),
         {data_race, uninitialised_read, barrier_misuse}},
        {"rows of another share converted",
         edit("conversion.first_query_tile * block_q + rows_.first_row", "rows_.first_row"),
         {}},
        {"dQ without its scale", edit("scale_at_store(arguments_.softmax_scale),\n", "1,\n"), {}},
    };
    require_found_with_three_places({"v5", 2}, faults);
}

TEST_CASE("v5: a count that never comes is a deadlock of blocks that run side by side too") {
    const SourceEdit not_converted =
        edit("count_global(arguments_.counters.converted + conversion.batch_head);", ";");
    const SourceEdit not_added =
        edit("count_global(arguments_.counters.added + key_tile_.batch_head);", ";");
    require_found_with_three_places({"v5", 2},
                                    {{"nobody told", not_converted, {deadlock}, side_by_side},
                                     {"no sum told of", not_added, {deadlock}, side_by_side}});
}

TEST_CASE("v5: a counter that keeps what the run before has counted is found") {
    require_counters_are_reset({"v5", 2});
}

}  // namespace

}  // namespace backlight::test
