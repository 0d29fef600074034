#pragma once

// The test cases, for each executable that has a device to run them on. The file that includes this
// one defines `conformance_runtime`.

#include <doctest/doctest.h>

#include "conformance.hpp"

namespace backlight::conformance {

/// The Runtime whose device is tested; ready for work of the calling thread.
Runtime& conformance_runtime();

TEST_CASE("ldmatrix and stmatrix put every element in its place") {
    check_matrix_round_trips(conformance_runtime());
}
TEST_CASE("mma multiplies bf16 and fp16 exactly") {
    check_mma(conformance_runtime());
}
TEST_CASE("wgmma multiplies operands of every width and layout and swizzle") {
    check_wgmma(conformance_runtime());
}
TEST_CASE("wgmma multiplies fp16") {
    check_wgmma_fp16(conformance_runtime());
}
TEST_CASE("groups of wgmma are waited for one by one") {
    check_wgmma_groups(conformance_runtime());
}
TEST_CASE("tensor loads bring boxes of every rank and fill with zeros out of bounds") {
    check_tensor_loads(conformance_runtime());
}
TEST_CASE("tensor loads of boxes narrower than their swizzle keep its pattern") {
    check_tensor_loads_of_narrow_boxes(conformance_runtime());
}
TEST_CASE("tensor stores write what lies within bounds and nothing else") {
    check_tensor_stores(conformance_runtime());
}
TEST_CASE("tensor reductions add what lies within bounds and nothing else") {
    check_tensor_reductions(conformance_runtime());
}
TEST_CASE("bulk copies move bytes and bulk reductions add numbers") {
    check_bulk_copies(conformance_runtime());
}
TEST_CASE("proxy fences hand plain stores to bulk copies") {
    check_bulk_relay(conformance_runtime());
}
TEST_CASE("asynchronous copies fill what they do not read with zeros") {
    check_async_copies(conformance_runtime());
}
TEST_CASE("named barriers hand values from a producer to a consumer") {
    check_named_barriers(conformance_runtime());
}
TEST_CASE("a ring of mbarriers hands over tiles for many phases") {
    check_pipeline(conformance_runtime());
}
TEST_CASE("warpgroups that exchange registers hand over tiles") {
    check_warp_specialisation(conformance_runtime());
}
TEST_CASE("votes and shuffles and elections see the lanes that they should") {
    check_warp_collectives(conformance_runtime());
}
TEST_CASE("vector reductions to global memory lose no addend") {
    check_global_reductions(conformance_runtime());
}
TEST_CASE("tickets are dense and blocks that wait for a count see what was written before it") {
    check_global_counters(conformance_runtime());
}
TEST_CASE("conversions round to nearest even and exponentials stay within 2 ulp") {
    check_conversions(conformance_runtime());
}

}  // namespace backlight::conformance
