// The accumulator of dQ of the register-resident mma kernel where its blocks convert dQ: its places
// are used by several heads one after another.
#include <string>
#include <utility>
#include <vector>

#include "accumulator_faults.hpp"
#include "mma_resident_edits.hpp"

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
         edit("wait_for_global_counter<256>(arguments_.counters.added + "
              "conversion.batch_head,\n                                         "
              "static_cast<uint32_t>(kv_tiles_of(arguments_)));",
              ";"),
         {},
         side_by_side},
        {"added before the zeros",
         edit("lane_ == 0 && head_before >= 0", "false"),
         {},
         side_by_side},
        {"added before the zeros of the head before",
         edit("key_tile_.batch_head - places_of(arguments_)",
              "key_tile_.batch_head - places_of(arguments_) - 1"),
         {},
         side_by_side},
        {"a sum told of before all warps have added",
         edit("__syncthreads();\n    if (thread == 0) {\n        // Worked",
              "if (thread == 0) {\n        // Worked"),
         {},
         side_by_side},
        {"no zeros in the third place before the first head",
         {"attention_backward_delta.cu", "batch_head >= arguments.accumulator_heads",
          "batch_head >= 2"},
         {}},
        {"zeros not made for the last head",
         edit("conversion.batch_head + places_of(arguments) < arguments.batch_heads",
              "conversion.batch_head + places_of(arguments) + 1 < arguments.batch_heads"),
         {deadlock}},
        {"no zeros", edit("zero_piece(rows_.source(accumulator, at));", ";"), {}},
        {"zeros of a part of a piece",
         edit("reinterpret_cast<float4*>(accumulator)[i] =",
              "reinterpret_cast<float4*>(accumulator)[i / 2] ="),
         {}},
        {"nobody told",
         edit("count_global_behind_fence(arguments.counters.converted + "
              "work.conversion.batch_head);",
              ";"),
         {deadlock}},
        {"no sum told of",
         edit("count_global_behind_fence(arguments.counters.added + work.tile.batch_head);", ";"),
         {deadlock}},
        {"a ticket that is read before it is drawn",
         edit("    }\n    __syncthreads();\n\n    const int ticket",
              "    }\n\n    const int ticket"),
         {data_race, uninitialised_read, barrier_misuse}},
        {"rows of another share converted",
         edit("conversion.first_query_tile * block_q + rows_.first_row", "rows_.first_row"),
         {}},
        {"dQ without its scale", edit("arguments_.softmax_scale,\n", "1,\n"), {}},
    };
    require_found_with_three_places({"v5", 2}, faults);
}

TEST_CASE("v5: a counter that keeps what the run before has counted is found") {
    require_counters_are_reset({"v5", 2});
}

}  // namespace

}  // namespace backlight::test
