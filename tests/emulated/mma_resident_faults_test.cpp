// Faults planted in the register-resident mma kernel.
#include <string>
#include <utility>

#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace mma_resident_edits;
using enum FaultKind;

/// Four query tiles, so that every place is used again.
ProblemRun run_of(std::int64_t head_dim, bool causal = false, std::int64_t heads = 1) {
    return {.problem = square_problem(1, heads, 128, head_dim, causal),
            .config = kernel_preset("v4")};
}
ProblemRun wide() {
    return run_of(128);
}
ProblemRun narrow() {
    return run_of(64);
}
ProblemRun tall() {
    ProblemRun run = run_of(64);
    run.problem.problem.seqlen_q = 256;
    run.config.block_q = 64;
    return run;
}

/// What is said of a read of a tile that has not been waited for: the copy has not been asked for,
/// is under way, or has come.
const std::vector<FaultKind> in_no_order = {uninitialised_read, copy_in_flight, data_race};
/// Of a copy over what is still being read.
const std::vector<FaultKind> over_its_readers = {source_overwritten, data_race, copy_in_flight,
                                                 arrival_overflow};

TEST_CASE("mma_resident: a dropped wait for a tile is found") {
    const std::vector<PlantedFault> faults = {
        {"K and V", {dropped("mbarrier_wait(shared_.kv_full(), 0);")}, wide(), in_no_order},
        {"Q",
         {dropped("mbarrier_wait(shared_.q_full(tile_), SharedMemory::q_parity(tile_));")},
         wide(),
         in_no_order},
        {"dO",
         {dropped("mbarrier_wait(shared_.d_o_full(), SharedMemory::parity(tile_));")},
         narrow(),
         in_no_order},
        {"dS",
         {dropped("if (warp_ != 0) {\n            wait_for_others();\n        }")},
         wide(),
         {uninitialised_read, data_race}},
        {"dS of query tiles of 64",
         {dropped("if (warp_ != 0) {\n            wait_for_others();\n        }")},
         tall(),
         {uninitialised_read, data_race}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: a place that is filled before its readers are done is found") {
    const std::vector<PlantedFault> faults = {
        {"the next tile is asked for before the others have arrived",
         {edit("wait_for_others();\n            load_next(query_start", "load_next(query_start"),
          edit("        if (warp_ != 0) {\n            wait_for_others();",
               "        {\n            wait_for_others();")},
         wide(),
         over_its_readers,
         10},
        {"Q has one place",
         {edit("base + q_first_offset + tile % q_stages * (q_second_offset - q_first_offset)",
               "base + q_first_offset")},
         wide(),
         over_its_readers,
         10},
        {"dS has one place",
         {edit("base + d_s_offset + tile % d_s_buffers * ScoreTile::bytes", "base + d_s_offset")},
         tall(),
         {data_race},
         20},
        {"dS is stored over V",
         {edit("// Each warp stores dS over V.\n        __syncthreads();", ";")},
         wide(),
         {data_race},
         20},
        {"a barrier is used before it is initialised",
         {edit("    }\n    __syncthreads();\n\n    const int ticket",
               "    }\n\n    const int ticket")},
         narrow(),
         {barrier_misuse, data_race, uninitialised_read},
         20},
    };
    require_found(faults);
}

// What a GPU did wrong in up to 7 of 12 runs: the fragments of a tile are still on their way when
// all threads have passed a barrier, and a copy goes over the tile.
TEST_CASE("mma_resident: a copy over fragments that may be on their way is found") {
    const std::vector<PlantedFault> faults = {
        {"dO, of a tile of 128 columns",
         {dropped("fence_shared_before_async_proxy();")},
         wide(),
         {source_overwritten}},
        {"dO, of a tile of 64",
         {dropped("fence_shared_before_async_proxy();")},
         tall(),
         {source_overwritten}},
        {"dO, with a fence behind the arrival",
         {edit("        end_reads();\n", ""),
          edit("        arrive(query_start, head);\n",
               "        arrive(query_start, head);\n        end_reads();\n")},
         wide(),
         {source_overwritten}},
        {"V, by way of the first query tile, which is loaded behind a barrier of all threads",
         {edit("constexpr int v_offset = lse_offset - KvTile::bytes;",
               "constexpr int v_offset = q_first_offset;"),
          edit("static_assert(v_offset >= q_second_offset && v_offset % 1024 == 0,",
               "static_assert(v_offset % 1024 == 0,"),
          edit(
              "        const int query_start = first_query_of(arguments_, key_tile_);\n        "
              "load_q(0,",
              "    }\n    __device__ __forceinline__ void load_second() const {\n        const int "
              "query_start = first_query_of(arguments_, key_tile_);\n        load_q(0,"),
          edit("// Each warp stores dS over V.\n        __syncthreads();",
               "__syncthreads();\n        if (warp_ == 0 && elect_one()) {\n            "
               "loader_.load_second();\n        }")},
         wide(),
         {source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: an arrival that does not come or comes too often is found") {
    const std::vector<PlantedFault> faults = {
        {"dS", {dropped("mbarrier_arrive(shared_.exchanged());")}, narrow(), {deadlock}},
        {"dS, of one warp too few",
         {edit("mbarrier_initialise(shared.exchanged(), warps);",
               "mbarrier_initialise(shared.exchanged(), warps - 1);")},
         wide(),
         {arrival_overflow, data_race, source_overwritten, uninitialised_read, missed_phase,
          wrong_parity, copy_in_flight, deadlock},
         10},
        {"dS, of one warp too many",
         {edit("mbarrier_initialise(shared.exchanged(), warps);",
               "mbarrier_initialise(shared.exchanged(), warps + 1);")},
         narrow(),
         {deadlock}},
        {"dS, before all lanes have stored it",
         {edit("        __syncwarp();\n        if (lane_ == 0) {\n            if constexpr",
               "        if (lane_ == 0) {\n            if constexpr")},
         wide(),
         {data_race, source_overwritten, uninitialised_read},
         20},
        {"the bytes of K and V",
         {dropped("mbarrier_arrive_expect_bytes(shared_.kv_full(), KTile::bytes + VTile::bytes);")},
         narrow(),
         {transaction_mismatch, deadlock}},
        {"the bytes of Q",
         {edit("const uint32_t barrier = shared_.q_full(tile);\n        "
               "mbarrier_arrive_expect_bytes(barrier, QTile::bytes + statistics_bytes);",
               "const uint32_t barrier = shared_.q_full(tile);\n        "
               "mbarrier_arrive_expect_bytes(barrier, QTile::bytes);")},
         narrow(),
         {transaction_mismatch, deadlock, copy_in_flight, uninitialised_read, data_race}},
        {"the bytes of delta",
         {edit("const uint32_t barrier = shared_.d_o_full(tile);\n        "
               "mbarrier_arrive_expect_bytes(barrier, DOTile::bytes + statistics_bytes);",
               "const uint32_t barrier = shared_.d_o_full(tile);\n        "
               "mbarrier_arrive_expect_bytes(barrier, DOTile::bytes);")},
         narrow(),
         {transaction_mismatch, deadlock, copy_in_flight, uninitialised_read, data_race}},
        {"a fence behind the initialisation of barriers",
         {dropped("mbarrier_initialisation_fence();")},
         narrow(),
         {missing_proxy_fence}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: a wrong parity is found") {
    const std::vector<PlantedFault> faults = {
        {"of Q, as of dO",
         {edit("{ return tile / q_stages % 2; }", "{ return tile % 2; }")},
         narrow(),
         {wrong_parity, deadlock, copy_in_flight, data_race, uninitialised_read}},
        {"of Q, always 0",
         {edit("{ return tile / q_stages % 2; }", "{ return 0 * tile; }")},
         wide(),
         {wrong_parity, copy_in_flight, data_race, uninitialised_read, deadlock}},
        {"of dO and dS, always 0",
         {edit("static int parity(int tile) { return tile % 2; }",
               "static int parity(int tile) { return 0 * tile; }")},
         wide(),
         {wrong_parity, copy_in_flight, data_race, uninitialised_read, deadlock}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: what computes something else gives wrong numbers") {
    ProblemRun groups = run_of(64, false, 3);
    groups.config.heads_per_group = 2;
    const std::vector<PlantedFault> faults = {
        {"no mask",
         {edit("exponentiate<diagonal>(scores", "exponentiate<below_diagonal>(scores")},
         run_of(64, true),
         {}},
        {"the mask ends too soon",
         {edit("step<1>(query_start", "step<below_diagonal>(query_start")},
         run_of(128, true),
         {}},
        {"dQ of fewer keys than a tile on the diagonal sees",
         {edit("(diagonal + 1) * query_slices : key_slices",
               "diagonal * query_slices + 1 : key_slices")},
         run_of(128, true),
         {}},
        {"keys that a tile on the diagonal sees are left out",
         {edit("first_key() < seen_slices * mma_k", "first_key() + mma_k < seen_slices * mma_k")},
         run_of(128, true),
         {}},
        {"the diagonal is hidden",
         {edit("behind + i / 2 * 8 > fragment", "behind + i / 2 * 8 >= fragment")},
         run_of(64, true),
         {}},
        {"dQ of the first columns by all warps",
         {edit("rows_first(KvTile{shared_.k()}, 0, d_q_column(), lane)",
               "rows_first(KvTile{shared_.k()}, 0, 0, lane)")},
         wide(),
         {}},
        {"dQ of the first queries by all warps",
         {edit("columns_first(d_s_tile, 0, d_q_row(), lane)",
               "columns_first(d_s_tile, 0, 0, lane)")},
         tall(),
         {}},
        {"dQ added to the tile before",
         {edit("d_q_place_ += block_q * head_dim;", ";")},
         narrow(),
         {}},
        {"dQ of rows as far apart as those of tiles",
         {edit("row * (mma_m * head_dim)", "row * (block_q * head_dim / 4)")},
         wide(),
         {}},
        {"dS from the wrong rows of P",
         {edit("p[fragment][2 * row] *", "p[fragment][2 - 2 * row] *")},
         narrow(),
         {}},
        {"LSE of other queries",
         {edit("i % 2 == 0 ? even : odd", "i % 2 == 0 ? odd : even")},
         narrow(),
         {}},
        {"delta of other queries",
         {edit("half == 0 ? negated_delta.x : negated_delta.z", "negated_delta.x")},
         wide(),
         {}},
        {"dK without its scale",
         {edit("scale = scale_at_store(arguments_.softmax_scale);", "scale = 1;")},
         narrow(),
         {}},
        {"the second rows of dK over the first",
         {edit("row_of(arguments_.d_k, arguments_.d_k_strides, half * 8)",
               "row_of(arguments_.d_k, arguments_.d_k_strides, 0)")},
         wide(),
         {}},
        {"all tickets of a group are for its first head",
         {{"attention_backward_rounds/work.cuh", "in_round % group_heads", "in_round % 1"}},
         groups,
         {}},
        {"dQ without its scale",
         {edit("pack<Gradient>(a.x * scale, a.y * scale)", "pack<Gradient>(a.x, a.y)")},
         wide(),
         {}},
        {"the lower half of each fragment of dQ not converted",
         {edit("d_q + 8 * stride", "d_q")},
         narrow(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: a kernel that does not wait for the one before it gives wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"LSE and delta",
         {edit("wait_for_previous_kernel();\n        load_lse", "load_lse")},
         narrow(),
         {},
         20},
        {"the accumulator",
         {edit("// The accumulator has been zeroed by the delta kernel.\n        "
               "wait_for_previous_kernel();",
               ";"),
          edit("wait_for_previous_kernel();\n        load_lse", "load_lse")},
         narrow(),
         {},
         20},
        {"an accumulator that nobody zeroes",
         {{"attention_backward_delta.cu",
           "if (!packed && batch_head >= arguments.accumulator_heads) {", "{"}},
         wide(),
         {}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
