// Faults planted in the attention kernel of wgmma. What only the device's compiler minds
// (wgmma_settle) has no fault here, nor has the order of global memory, which is not modelled.
#include <vector>

#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace wgmma_edits;
using enum FaultKind;

/// One head; of several query tiles, so that stages are used again.
ProblemRun run_of(std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t head_dim,
                  bool causal = false) {
    ProblemRun run{.problem = square_problem(1, 1, seqlen_q, head_dim, causal),
                   .config = kernel_preset("wgmma")};
    run.problem.problem.seqlen_kv = seqlen_kv;
    return run;
}
/// One key tile, with K and V in registers.
ProblemRun narrow() {
    return run_of(256, 128, 64);
}
/// One key tile, with K and V in shared memory, and two parts of dQ.
ProblemRun wide() {
    return run_of(256, 128, 128);
}
/// Two key tiles, which add to the same dQ. Heads one by one, so that the tickets of both are
/// close.
ProblemRun two_tiles(std::int64_t head_dim = 64, bool causal = false) {
    ProblemRun run = run_of(256, 256, head_dim, causal);
    run.config.heads_per_group = 1;
    return run;
}

/// What is said of a read of a tile that has not been waited for: the copy has not been asked for,
/// is under way, or has come.
const std::vector<FaultKind> in_no_order = {uninitialised_read, copy_in_flight, data_race};
/// Of a write to what is still being read; where it is a load, its barrier may be asked too much.
const std::vector<FaultKind> over_its_readers = {source_overwritten, data_race, copy_in_flight,
                                                 arrival_overflow};
/// Of a barrier whose phases come too soon.
const std::vector<FaultKind> too_soon = {arrival_overflow,   source_overwritten,  data_race,
                                         copy_in_flight,     wrong_parity,        missed_phase,
                                         uninitialised_read, missing_proxy_fence, deadlock};

TEST_CASE("wgmma: a dropped wait for a tile is found") {
    const std::vector<PlantedFault> faults = {
        {"K",
         {dropped("mbarrier_wait(shared_.k_full(kv_ring_.slot), kv_ring_.parity);")},
         wide(),
         in_no_order},
        {"K, for registers",
         {dropped("mbarrier_wait(shared_.k_full(kv_ring_.slot), kv_ring_.parity);")},
         narrow(),
         in_no_order},
        {"V",
         {edit("receive_v() {\n        mbarrier_wait(shared_.v_full(kv_ring_.slot), "
               "kv_ring_.parity);",
               "receive_v() {")},
         wide(),
         in_no_order},
        {"V, for registers",
         {edit("receive_v() {\n        mbarrier_wait(shared_.v_full(kv_ring_.slot), "
               "kv_ring_.parity);",
               "receive_v() {")},
         narrow(),
         in_no_order},
        {"the first Q",
         {edit("count_steps(const HeldTile& tile) {\n        "
               "mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);",
               "count_steps(const HeldTile& tile) {")},
         narrow(),
         in_no_order},
        {"the next Q",
         {dropped("mbarrier_wait(shared_.q_full(next), query_ring_.parity);")},
         narrow(),
         in_no_order},
        {"dO", {dropped("mbarrier_wait(shared_.d_o_full(stage), parity);")}, wide(), in_no_order},
        {"dS",
         {dropped("mbarrier_wait(shared_.d_s_full(d_s_ring_.slot), d_s_ring_.parity);")},
         narrow(),
         {uninitialised_read, data_race}},
        {"a part of dQ to be converted",
         {dropped("mbarrier_wait(shared_.conversion_full(ring_.slot()), ring_.parity());")},
         narrow(),
         in_no_order},
        {"work",
         {dropped("mbarrier_wait(shared_.work_full(slot), ring_.parity());")},
         narrow(),
         {uninitialised_read, data_race}},
    };
    require_found(faults);
}

// Nothing of dO: its stage is loaded after Q of the same stage, which is released later by all that
// read dO.
TEST_CASE("wgmma: a buffer that is filled before its readers are done is found") {
    const std::vector<PlantedFault> faults = {
        {"Q",
         {dropped("mbarrier_wait(shared_.q_empty(stage), parity ^ 1);")},
         narrow(),
         over_its_readers,
         10},
        {"dS",
         {dropped("mbarrier_wait(shared_.d_s_empty(buffer), d_s_ring_.parity ^ 1);")},
         narrow(),
         over_its_readers,
         10},
        {"K",
         {dropped("mbarrier_wait(shared_.k_empty(buffer), kv_parity ^ 1);")},
         two_tiles(128),
         over_its_readers,
         10},
        {"V",
         {dropped("mbarrier_wait(shared_.v_empty(buffer), kv_parity ^ 1);")},
         two_tiles(128),
         over_its_readers,
         10},
        {"work",
         {edit("mbarrier_wait(shared_.work_empty(slot), rings_.work_parity() ^ 1);\n        const "
               "auto",
               "const auto")},
         narrow(),
         too_soon,
         10},
        {"work, released before all lanes have seen it posted",
         {edit("__syncwarp();\n            if (lane == 0) {\n                "
               "mbarrier_arrive(shared_.work_empty(slot)",
               "if (lane == 0) {\n                mbarrier_arrive(shared_.work_empty(slot)")},
         narrow(),
         {deadlock, missed_phase, wrong_parity, divergent_collective},
         10},
        {"Q, released before dK is complete",
         {dropped("wgmma_wait<1>();")},
         narrow(),
         over_its_readers,
         20},
        {"dS, released before dQ is complete",
         {edit("wgmma_wait<0>();\n                wgmma_settle(d_q);", ";"),
          edit("named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n                "
               "const uint32_t staged",
               "wgmma_wait<0>();\n                named_barrier_synchronise(query_warpgroup_own, "
               "warpgroup_size);\n                const uint32_t staged")},
         narrow(),
         over_its_readers,
         20},
        {"K, released by the query warpgroup before dQ is complete",
         {edit("        __syncwarp();\n        if (lane_ == 0) {\n            "
               "mbarrier_arrive(shared_.k_empty(kv_buffer));\n        }\n",
               ""),
          edit("        DqSum sum(arguments_, shared_, with_rows(tile), thread_ == 0);\n",
               "        DqSum sum(arguments_, shared_, with_rows(tile), thread_ == 0);\n        if "
               "(lane_ "
               "== 0) {\n            "
               "mbarrier_arrive(shared_.k_empty(kv_buffer));\n        }\n")},
         two_tiles(128),
         over_its_readers,
         20},
        {"V, released while its dV still leaves",
         {dropped("bulk_wait_read<1>();")},
         two_tiles(128),
         over_its_readers,
         20},
    };
    require_found(faults);
}

TEST_CASE("wgmma: an arrival that does not come is found") {
    const std::vector<PlantedFault> faults = {
        {"K full",
         {edit(
             "load_keys(shared_.k(buffer), arguments_.k, packed_k, tile, shared_.k_full(buffer));",
             "load_tile<KvTile>(shared_.k(buffer), arguments_.k, tile.kv_start, tile.head, "
             "tile.batch, shared_.k_full(buffer));")},
         narrow(),
         {transaction_mismatch, deadlock}},
        {"V full",
         {edit("load_keys(shared_.v(buffer), arguments_.v, packed_v, tile, "
               "shared_.v_full(buffer));\n            "
               "}\n            mbarrier_wait(shared_.d_o_empty(stage), parity",
               "load_tile<KvTile>(shared_.v(buffer), arguments_.v, tile.kv_start, tile.head, "
               "tile.batch, shared_.v_full(buffer));\n            "
               "}\n            mbarrier_wait(shared_.d_o_empty(stage), parity")},
         narrow(),
         {transaction_mismatch, deadlock}},
        {"Q full",
         {dropped("mbarrier_arrive_expect_bytes(shared_.q_full(stage), QueryTile::bytes + "
                  "statistics_bytes);")},
         narrow(),
         {transaction_mismatch, deadlock}},
        {"dO full",
         {dropped("mbarrier_arrive_expect_bytes(shared_.d_o_full(stage), QueryTile::bytes + "
                  "statistics_bytes);")},
         narrow(),
         {transaction_mismatch, deadlock}},
        {"dO empty",
         {edit("wgmma_settle(state_.p);\n        release(shared_.d_o_empty(stage));",
               "wgmma_settle(state_.p);")},
         narrow(),
         {deadlock}},
        {"Q empty",
         {edit("settle_d_k();\n            release(shared_.q_empty(stage));\n            "
               "if constexpr (!lse",
               "settle_d_k();\n            if constexpr (!lse")},
         narrow(),
         {deadlock}},
        {"dS full", {dropped("release(shared_.d_s_full(buffer));")}, narrow(), {deadlock}},
        {"dS empty",
         {dropped("mbarrier_arrive(shared_.d_s_empty(d_s_ring_.slot));")},
         narrow(),
         {deadlock}},
        {"K empty",
         {dropped("mbarrier_arrive(shared_.k_empty(kv_buffer));")},
         two_tiles(128),
         {deadlock}},
        {"V empty",
         {dropped("bulk_wait_read<1>();\n            mbarrier_arrive(shared_.v_empty(buffer));")},
         two_tiles(128),
         {deadlock}},
        {"work",
         {edit("mbarrier_arrive(shared_.work_full(slot));\n        rings_.advance_work();\n    }",
               "rings_.advance_work();\n    }")},
         narrow(),
         {deadlock}},
        {"work read",
         {dropped("mbarrier_arrive(shared_.work_empty(slot));")},
         narrow(),
         {deadlock}},
        {"Q and dO that one warpgroup leaves out",
         {edit("mbarrier_wait(shared_.d_o_full(stage), query_ring_.parity);\n        "
               "release(shared_.d_o_empty(stage));",
               "")},
         two_tiles(64, true),
         {deadlock}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrong parity is found") {
    const std::vector<PlantedFault> faults = {
        {"Q empty",
         {edit("q_empty(stage), parity ^ 1)", "q_empty(stage), parity)")},
         narrow(),
         {deadlock}},
        {"dO full",
         {edit("d_o_full(stage), parity)", "d_o_full(stage), parity ^ 1)")},
         narrow(),
         {uninitialised_read, copy_in_flight, data_race, wrong_parity, deadlock}},
        {"dS full, always 0",
         {edit("d_s_full(d_s_ring_.slot), d_s_ring_.parity)", "d_s_full(d_s_ring_.slot), 0)")},
         narrow(),
         {wrong_parity},
         20},
        {"dS empty, always 1",
         {edit("d_s_empty(buffer), d_s_ring_.parity ^ 1)", "d_s_empty(buffer), 1)")},
         narrow(),
         {wrong_parity, missed_phase, source_overwritten, data_race, deadlock},
         20},
        {"of the buffers to be converted, always the first",
         {edit("ring_.advance();\n        }\n        if (leads() && leaves_zeros)",
               "}\n        if (leads() && leaves_zeros)")},
         narrow(),
         {wrong_parity, uninitialised_read, copy_in_flight, data_race, arrival_overflow},
         20},
        {"of every ring, never turned",
         {edit("            slot = 0;\n            parity ^= 1;\n", "            slot = 0;\n")},
         narrow(),
         {wrong_parity, deadlock},
         20},
        {"of every ring, turned each step",
         {edit("        if (++slot == slots) {\n            slot = 0;\n            parity ^= 1;\n  "
               "      }\n",
               "        parity ^= 1;\n        if (++slot == slots) {\n            slot = 0;\n      "
               "  }\n")},
         narrow(),
         {wrong_parity, deadlock, missed_phase, uninitialised_read, copy_in_flight, data_race,
          source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a missing fence is found") {
    const std::vector<PlantedFault> faults = {
        {"after the initialisation of barriers",
         {dropped("mbarrier_initialisation_fence();")},
         narrow(),
         {missing_proxy_fence}},
        {"before dS is full",
         {edit("fence_shared_before_async_proxy();\n        release(shared_.d_s_full(buffer))",
               "release(shared_.d_s_full(buffer))")},
         narrow(),
         {missing_proxy_fence}},
        {"before the bulk store of dQ",
         {edit("fence_shared_before_async_proxy();\n                "
               "named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n                "
               "if (thread_ == 0)",
               "named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n                "
               "if (thread_ == 0)")},
         narrow(),
         {missing_proxy_fence}},
        {"before the stores of dK and dV",
         {edit("fence_shared_before_async_proxy();\n        synchronise();\n    }\n\n    "
               "__device__ __forceinline__ void stage(",
               "synchronise();\n    }\n\n    __device__ __forceinline__ void stage(")},
         narrow(),
         {missing_proxy_fence}},
        {"before the store of converted dQ",
         {edit("fence_shared_before_async_proxy();\n            synchronise();\n            if "
               "(leads())",
               "synchronise();\n            if (leads())")},
         narrow(),
         {missing_proxy_fence}},
        {"before the products of scores",
         {edit("wgmma_fence();\n#pragma unroll\n        for (int slice = 0; slice < depth_",
               "\n#pragma unroll\n        for (int slice = 0; slice < depth_")},
         wide(),
         {missing_wgmma_fence}},
        {"before the products of gradients",
         {edit("wgmma_fence();\n#pragma unroll\n        for (int slice = 0; slice < query_",
               "\n#pragma unroll\n        for (int slice = 0; slice < query_")},
         narrow(),
         {missing_wgmma_fence}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a product that is used before it is complete is found") {
    const std::vector<PlantedFault> faults = {
        {"the first scores",
         {edit("wait_for_stores();\n        wgmma_wait<0>();", "wait_for_stores();")},
         narrow(),
         {register_in_flight}},
        {"dP and dV",
         {edit("wgmma_wait<0>();\n        wgmma_settle(state_.d_p());",
               "wgmma_settle(state_.d_p());")},
         narrow(),
         {register_in_flight}},
        {"dP and dV, waited for one group too few",
         {edit("wgmma_wait<0>();\n        wgmma_settle(state_.d_p());",
               "wgmma_wait<1>();\n        wgmma_settle(state_.d_p());")},
         narrow(),
         {register_in_flight}},
        {"the next scores",
         {edit("}\n            wgmma_wait<0>();\n            exponentiate(next",
               "}\n            exponentiate(next")},
         narrow(),
         {register_in_flight}},
        {"the last dK",
         {edit("wgmma_wait<0>();\n            settle_d_k();", "settle_d_k();")},
         narrow(),
         {register_in_flight}},
        {"dQ",
         {edit("wgmma_wait<0>();\n                wgmma_settle(d_q);", ";")},
         narrow(),
         {register_in_flight}},
        {"products that are never committed",
         {edit("wgmma_commit();\n    }\n\n    /// gradient +=", "}\n\n    /// gradient +=")},
         narrow(),
         {register_in_flight}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a descriptor of another matrix is found") {
    const std::vector<PlantedFault> faults = {
        {"a panel of Q and dO half as far",
         {edit("b.advanced(panel * QueryTile::panel_bytes + in_panel)",
               "b.advanced(panel * QueryTile::panel_bytes / 2 + in_panel)")},
         wide(),
         {}},
        {"a panel of K and V as far as one of Q",
         {edit("panel * KvTile::panel_bytes + in_panel",
               "panel * QueryTile::panel_bytes + in_panel")},
         wide(),
         {source_overwritten, data_race}},
        {"half a step",
         {edit("slice % 4 * k_major_step", "slice % 4 * (k_major_step / 2)")},
         narrow(),
         {}},
        {"keys of the other warpgroup",
         {edit("a_tile + warpgroup_ * keys_per_warpgroup * KvTile::row_bytes", "a_tile")},
         wide(),
         {source_overwritten, data_race}},
        {"a start between the swizzle's patterns",
         {edit("const MatrixDescriptor b(b_tile, layout);",
               "const MatrixDescriptor b(b_tile + 128, layout);")},
         narrow(),
         {invalid_descriptor}},
        {"Q and dO by rows",
         {edit("wgmma_m64k16<Element, head_dim, Major::mn>(",
               "wgmma_m64k16<Element, head_dim, Major::k>(")},
         narrow(),
         {source_overwritten, data_race}},
        {"a step of half the queries",
         {edit("b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128))",
               "b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128) / 2)")},
         narrow(),
         {}},
        {"panels of Q and dO as far apart as K's",
         {edit("mn_major_layout(MatrixSwizzle::bytes_128, QueryTile::panel_bytes)",
               "mn_major_layout(MatrixSwizzle::bytes_128, KvTile::panel_bytes)")},
         wide(),
         {uninitialised_read, copy_in_flight, data_race}},
        {"the first columns of K twice",
         {edit("shared_.k(kv_buffer) + part * KvTile::panel_bytes", "shared_.k(kv_buffer)")},
         wide(),
         {}},
        {"dS by rows",
         {edit("wgmma_m64k16<Element, d_q_part_columns, Major::mn, Major::mn>(",
               "wgmma_m64k16<Element, d_q_part_columns, Major::k, Major::mn>(")},
         narrow(),
         {source_overwritten, data_race}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: staging of dQ without its barriers and waits is found") {
    const std::vector<PlantedFault> faults = {
        {"written before the store before it has read",
         {dropped("bulk_wait_read<d_q_buffers - 1>();")},
         two_tiles(),
         {source_overwritten}},
        {"written while one store too many may read",
         {edit("bulk_wait_read<d_q_buffers - 1>()", "bulk_wait_read<d_q_buffers>()")},
         two_tiles(),
         {source_overwritten}},
        {"written before others know that it was read",
         {edit("named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n                "
               "const uint32_t staged",
               "const uint32_t staged")},
         two_tiles(),
         {source_overwritten, data_race},
         20},
        {"stored before it is whole",
         {edit("named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n                "
               "if (thread_ == 0) {\n                    sum.add",
               "if (thread_ == 0) {\n                    sum.add")},
         narrow(),
         {uninitialised_read, data_race, missing_proxy_fence}},
        {"one buffer for all", {dropped("d_q_buffer_ ^= 1;")}, two_tiles(), {source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: conversion of dQ without its barriers and waits is found") {
    const std::vector<PlantedFault> faults = {
        {"over what still leaves",
         {edit("bulk_wait_read<0>();  // the part before has left", ";")},
         narrow(),
         {source_overwritten}},
        {"over what others do not know to have left",
         {edit("// the part before has left\n                }\n                synchronise();",
               "// the part before has left\n                }")},
         narrow(),
         over_its_readers,
         20},
        {"stored before it is whole",
         {edit("fence_shared_before_async_proxy();\n            synchronise();\n            if "
               "(leads())",
               "fence_shared_before_async_proxy();\n            if (leads())")},
         narrow(),
         {uninitialised_read, data_race, missing_proxy_fence, source_overwritten}},
        {"without a wait at the end",
         {edit("        if (leads()) {\n            bulk_wait<0>();\n        }\n", "")},
         narrow(),
         {unfinished_copies}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: dK and dV that leave too early are found") {
    const std::vector<PlantedFault> faults = {
        {"over rows that the other warpgroup still reads",
         {edit("KvTile{staged}.address(\n            warpgroup_ *",
               "KvTile{staged}.address(\n            (1 - warpgroup_) *")},
         wide(),
         {data_race, uninitialised_read, missing_proxy_fence, source_overwritten},
         10},
        {"before the warpgroup has written",
         {edit("fence_shared_before_async_proxy();\n        synchronise();\n    }\n\n    "
               "__device__ __forceinline__ void stage(",
               "fence_shared_before_async_proxy();\n    }\n\n    __device__ __forceinline__ void "
               "stage(")},
         narrow(),
         {data_race, missing_proxy_fence, uninitialised_read},
         10},
        {"dK over dS that the query warpgroup still reads",
         {dropped("            wait_for_query_warpgroup();\n")},
         wide(),
         over_its_readers,
         20},
        {"dK over the one of two dS that the query warpgroup still reads",
         {edit("for (int i = 0; i < d_s_buffers; ++i) {\n            mbarrier_wait",
               "for (int i = 0; i < 1; ++i) {\n            mbarrier_wait")},
         wide(),
         over_its_readers,
         20},
        {"dS over dK that leaves",
         {edit("goes over its dK.\n        wait_for_stores();\n", "goes over its dK.\n")},
         two_tiles(128),
         over_its_readers,
         10},
        {"over what leaves",
         {edit("            bulk_wait_read<0>();\n        }\n        synchronise();\n    }\n",
               "        }\n        synchronise();\n    }\n")},
         two_tiles(128),
         over_its_readers,
         10},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrongly set up barrier is found") {
    const std::vector<PlantedFault> faults = {
        {"bytes of Q without its LSE",
         {edit("mbarrier_arrive_expect_bytes(shared_.q_full(stage), QueryTile::bytes + "
               "statistics_bytes)",
               "mbarrier_arrive_expect_bytes(shared_.q_full(stage), QueryTile::bytes)")},
         narrow(),
         {transaction_mismatch}},
        {"bytes of dO without delta",
         {edit("mbarrier_arrive_expect_bytes(shared_.d_o_full(stage), QueryTile::bytes + "
               "statistics_bytes)",
               "mbarrier_arrive_expect_bytes(shared_.d_o_full(stage), QueryTile::bytes)")},
         narrow(),
         {transaction_mismatch}},
        {"bytes of half of K",
         {edit("mbarrier_arrive_expect_bytes(barrier, KvTile::bytes);",
               "mbarrier_arrive_expect_bytes(barrier, KvTile::bytes / 2);")},
         wide(),
         {transaction_mismatch}},
        {"bytes of half a part of dQ",
         {edit("shared_.conversion_full(buffer), conversion_buffer_bytes)",
               "shared_.conversion_full(buffer), conversion_buffer_bytes / 2)")},
         narrow(),
         {transaction_mismatch}},
        {"Q empty after one warp",
         {edit("shared.q_empty(stage), key_warps)", "shared.q_empty(stage), 1)")},
         narrow(),
         too_soon},
        {"dS full after one warpgroup",
         {edit("shared.d_s_full(buffer), key_warps)",
               "shared.d_s_full(buffer), warps_per_warpgroup)")},
         narrow(),
         too_soon},
        {"dS empty after as many warps as fill it",
         {edit("shared.d_s_empty(buffer), warps_per_warpgroup)",
               "shared.d_s_empty(buffer), key_warps)")},
         narrow(),
         {deadlock}},
        {"K empty without the query warpgroup",
         {edit("shared.k_empty(buffer), key_warps + warps_per_warpgroup)",
               "shared.k_empty(buffer), key_warps)")},
         two_tiles(128),
         too_soon,
         20},
        {"a ticket read by the loader too",
         {edit("work_empty(slot), working_warps)", "work_empty(slot), working_warps + 1)")},
         narrow(),
         {deadlock}},
        {"before other threads know of it",
         {edit("mbarrier_initialisation_fence();\n    }\n    __syncthreads();",
               "mbarrier_initialisation_fence();\n    }")},
         narrow(),
         {data_race, barrier_misuse, uninitialised_read}},
        {"one named barrier for both key warpgroups",
         {edit("named_barrier_synchronise(key_warpgroup_1, warpgroup_size)",
               "named_barrier_synchronise(key_warpgroup_0, warpgroup_size)")},
         two_tiles(128),
         {data_race, missing_proxy_fence, uninitialised_read, barrier_misuse},
         60},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrong mask, scale or place gives wrong numbers or none") {
    const std::vector<PlantedFault> faults = {
        {"the diagonal hidden",
         {edit("return behind + i / 2 * 8 > fragment * 8 + i % 2;",
               "return behind + i / 2 * 8 >= fragment * 8 + i % 2;")},
         two_tiles(64, true),
         {}},
        {"keys of the other half of a fragment",
         {edit("behind + i / 2 * 8 > fragment", "behind + fragment % 2 * 8 > fragment")},
         two_tiles(64, true),
         {}},
        {"the mask of a first query tile alone",
         {edit("* block_q < block_kv;", "* block_q < block_q;")},
         two_tiles(64, true),
         {}},
        {"no mask in the step before the diagonal",
         {edit("tile.first_query_tile() + block_kv / block_q;",
               "tile.first_query_tile() + block_kv / block_q - 1;")},
         run_of(384, 384, 64, true),
         {}},
        {"the first query tile too late",
         {edit("kv_start / specialisation::block_q : 0",
               "kv_start / specialisation::block_q + 1 : 0")},
         two_tiles(64, true),
         {deadlock}},
        {"dK without its scale",
         {edit("arguments_.softmax_scale, shared_.d_k()", "1.0F, shared_.d_k()")},
         narrow(),
         {}},
        {"dQ without its scale",
         {edit("pack<Element>(left.x * scale, left.y * scale)", "pack<Element>(left.x, left.y)")},
         narrow(),
         {}},
        {"dS without delta",
         {edit("p.x * (d_p[2 * i] + negated_delta.of(2 * i))", "p.x * d_p[2 * i]")},
         narrow(),
         {}},
        {"LSE of another tile",
         {edit("arguments_.negated_lse_log2 + first_row + query_start",
               "arguments_.negated_lse_log2 + first_row")},
         narrow(),
         {}},
        {"statistics of another lane",
         {edit("lane % 4 * 16", "(lane + 1) % 4 * 16")},
         narrow(),
         {}},
        {"batch and head exchanged",
         {edit("panel * SharedTile::panel_columns, row, head, batch, barrier",
               "panel * SharedTile::panel_columns, row, batch, head, barrier")},
         {.problem = square_problem(1, 2, 128, 64, false), .config = kernel_preset("wgmma")},
         {}},
        {"every tile stored and none added",
         {edit("bulk_reduce_add<float>(place()", "bulk_store(place()")},
         two_tiles(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a count that nobody makes is found") {
    const std::vector<PlantedFault> faults = {
        {"a block that does not tell that it is done",
         {dropped("count_global(deterministic ? arguments_.counters.added + tile.batch_head : "
                  "added_);")},
         narrow(),
         {deadlock}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
