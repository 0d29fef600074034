// Faults planted in the attention kernel of wgmma. What only the device's compiler minds
// (wgmma_settle) has no fault here.
#include "planted_faults.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

constexpr const char* wgmma = "attention_backward_wgmma.cu";

/// One head; of several query tiles, so that stages are used again.
ProblemRun run_of(std::int64_t seqlen_q, std::int64_t seqlen_kv, std::int64_t head_dim,
                  bool causal = false) {
    ProblemRun run{.problem = square_problem(1, 1, seqlen_q, head_dim, causal),
                   .config = kernel_preset("wgmma")};
    run.problem.problem.seqlen_kv = seqlen_kv;
    return run;
}
/// A block alone, with K and V in registers.
ProblemRun one_block() {
    return run_of(256, 128, 64);
}
/// A block alone, with K and V in shared memory, and two parts of dQ.
ProblemRun one_wide_block() {
    return run_of(256, 128, 128);
}
/// Two blocks, the second of which adds to the dQ of the first.
ProblemRun two_blocks(bool causal = false) {
    return run_of(256, 256, 64, causal);
}

SourceEdit edit(std::string from, std::string to) {
    return {wgmma, std::move(from), std::move(to)};
}

/// What is said of a read of a tile that has not been waited for: the copy has not been asked for,
/// is under way, or has come.
const std::vector<FaultKind> in_no_order = {uninitialised_read, copy_in_flight, data_race};
/// Of a write to what is still being read.
const std::vector<FaultKind> over_its_readers = {source_overwritten, data_race, copy_in_flight};

TEST_CASE("wgmma: a dropped wait for a tile is found") {
    const std::vector<PlantedFault> faults = {
        {"K and V",
         {edit("        mbarrier_wait(shared_.kv_full(), 0);\n", "")},
         one_wide_block(),
         in_no_order},
        {"K and V, for registers",
         {edit("        mbarrier_wait(shared_.kv_full(), 0);\n", "")},
         one_block(),
         in_no_order},
        {"the first Q",
         {edit("        mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);\n",
               "")},
         one_block(),
         in_no_order},
        {"the next Q",
         {edit("            mbarrier_wait(shared_.q_full(next), query_ring_.parity);\n", "")},
         one_block(),
         in_no_order},
        {"dO",
         {edit("        mbarrier_wait(shared_.d_o_full(stage), parity);\n", "")},
         one_wide_block(),
         in_no_order},
        {"dS",
         {edit("        mbarrier_wait(shared.d_s_full(d_s_ring.slot), d_s_ring.parity);\n", "")},
         one_block(),
         {uninitialised_read, data_race}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a buffer that is filled before its readers are done is found") {
    const std::vector<PlantedFault> faults = {
        {"Q",
         {edit("        mbarrier_wait(shared.q_empty(stage), ring.parity ^ 1);\n", "")},
         one_block(),
         over_its_readers,
         10},
        {"dO",
         {edit("        mbarrier_wait(shared.d_o_empty(stage), ring.parity ^ 1);\n", "")},
         one_block(),
         over_its_readers,
         10},
        {"dS",
         {edit("        mbarrier_wait(shared_.d_s_empty(buffer), d_s_ring_.parity ^ 1);\n", "")},
         one_block(),
         over_its_readers,
         10},
        {"dO, released before its products are complete",
         {edit("        delta.load(shared_.delta(stage), lane_);\n        wgmma_wait<0>();",
               "        delta.load(shared_.delta(stage), lane_);\n"
               "        release(shared_.d_o_empty(stage));\n        wgmma_wait<0>();"),
          edit("        wgmma_settle(state_.p);\n        release(shared_.d_o_empty(stage));\n",
               "        wgmma_settle(state_.p);\n")},
         one_block(),
         over_its_readers,
         20},
        {"dO, released before delta is read",
         {edit("        TileStatistics delta;\n        delta.load(shared_.delta(stage), lane_);\n",
               "        TileStatistics delta;\n"),
          edit(
              "        differentiate(delta);\n",
              "        delta.load(shared_.delta(stage), lane_);\n        differentiate(delta);\n")},
         one_block(),
         over_its_readers,
         20},
        {"Q, released before dK is complete",
         {edit("            wgmma_wait<1>();\n", "")},
         one_block(),
         over_its_readers,
         20},
        {"dS, released before dQ is complete",
         {edit("            wgmma_wait<0>();\n            wgmma_settle(d_q);\n", ""),
          edit("            named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n"
               "            const uint32_t staged",
               "            wgmma_wait<0>();\n"
               "            named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n"
               "            const uint32_t staged")},
         one_block(),
         over_its_readers,
         20},
        {"dS, released by warps that have not met",
         {edit("                __syncwarp();\n                if (lane == 0) {\n"
               "                    mbarrier_arrive(shared.d_s_empty",
               "                if (lane == 0) {\n"
               "                    mbarrier_arrive(shared.d_s_empty")},
         one_block(),
         over_its_readers,
         20},
    };
    require_found(faults);
}

TEST_CASE("wgmma: an arrival that does not come is found") {
    const auto dropped = [](const char* text) { return edit(text, ""); };
    const std::vector<PlantedFault> faults = {
        {"K and V full",
         {dropped("    mbarrier_arrive_expect_bytes(shared.kv_full(), 2 * KvTile::bytes);\n")},
         one_block(),
         {transaction_mismatch, deadlock}},
        {"Q full",
         {dropped("        mbarrier_arrive_expect_bytes(shared.q_full(stage), QueryTile::bytes + "
                  "statistics_bytes);\n")},
         one_block(),
         {transaction_mismatch, deadlock}},
        {"dO empty",
         {dropped("        release(shared_.d_o_empty(stage));\n")},
         one_block(),
         {deadlock}},
        {"Q empty",
         {edit("            settle_d_k();\n            release(shared_.q_empty(stage));\n"
               "            TileStatistics lse;",
               "            settle_d_k();\n            TileStatistics lse;")},
         one_block(),
         {deadlock}},
        {"dS full",
         {dropped("        release(shared_.d_s_full(buffer));\n")},
         one_block(),
         {deadlock}},
        {"dS empty",
         {edit("                    mbarrier_arrive(shared.d_s_empty(d_s_ring.slot));", ";")},
         one_block(),
         {deadlock}},
        {"K read",
         {dropped("    named_barrier_arrive(keys_read, (key_warpgroups + 1) * warpgroup_size);\n")},
         one_block(),
         {deadlock}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrong parity is found") {
    const std::vector<PlantedFault> faults = {
        {"Q empty",
         {edit("q_empty(stage), ring.parity ^ 1", "q_empty(stage), ring.parity")},
         one_block(),
         {deadlock}},
        {"dO full",
         {edit("d_o_full(stage), parity)", "d_o_full(stage), parity ^ 1)")},
         one_block(),
         {uninitialised_read, copy_in_flight, data_race, wrong_parity}},
        {"dS full, always 0",
         {edit("d_s_full(d_s_ring.slot), d_s_ring.parity)", "d_s_full(d_s_ring.slot), 0)")},
         one_block(),
         {wrong_parity},
         20},
        {"dS empty, always 1",
         {edit("d_s_empty(buffer), d_s_ring_.parity ^ 1)", "d_s_empty(buffer), 1)")},
         one_block(),
         {wrong_parity, missed_phase, source_overwritten, data_race},
         20},
        {"of every ring, never turned",
         {edit("            parity ^= 1;\n", "")},
         one_block(),
         {wrong_parity, deadlock},
         20},
        {"turned each step",
         {edit("        if (++slot == slots) {\n            slot = 0;\n            parity ^= 1;\n"
               "        }\n",
               "        parity ^= 1;\n        if (++slot == slots) {\n            slot = 0;\n"
               "        }\n")},
         one_block(),
         {wrong_parity, deadlock, missed_phase, uninitialised_read, copy_in_flight, data_race,
          source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a missing fence is found") {
    const std::vector<PlantedFault> faults = {
        {"after the initialisation of barriers",
         {edit("        mbarrier_initialisation_fence();\n", "")},
         one_block(),
         {missing_proxy_fence}},
        {"before dS is full",
         {edit("        fence_shared_before_async_proxy();\n        "
               "release(shared_.d_s_full(buffer))",
               "        release(shared_.d_s_full(buffer))")},
         one_block(),
         {missing_proxy_fence}},
        {"before the bulk store of dQ",
         {edit("            fence_shared_before_async_proxy();\n            "
               "named_barrier_synchronise("
               "query_warpgroup_own, warpgroup_size);\n            if (thread == 0)",
               "            named_barrier_synchronise("
               "query_warpgroup_own, warpgroup_size);\n            if (thread == 0)")},
         one_block(),
         {missing_proxy_fence}},
        {"before the stores of dK and dV",
         {edit("        fence_shared_before_async_proxy();\n        // A constant each",
               "        // A constant each")},
         one_block(),
         {missing_proxy_fence}},
        {"before the products of scores",
         {edit("        wgmma_fence();\n#pragma unroll\n        for (int slice = 0; slice < depth_",
               "#pragma unroll\n        for (int slice = 0; slice < depth_")},
         one_wide_block(),
         {missing_wgmma_fence}},
        {"before the products of gradients",
         {edit("        wgmma_fence();\n#pragma unroll\n        for (int slice = 0; slice < query_",
               "#pragma unroll\n        for (int slice = 0; slice < query_")},
         one_block(),
         {missing_wgmma_fence}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a product that is used before it is complete is found") {
    const std::vector<PlantedFault> faults = {
        {"the first scores",
         {edit("        wgmma_wait<0>();\n        int query_tile", "        int query_tile")},
         one_block(),
         {register_in_flight}},
        {"dP and dV",
         {edit("        wgmma_wait<0>();\n        wgmma_settle(state_.d_p());",
               "        wgmma_settle(state_.d_p());")},
         one_block(),
         {register_in_flight}},
        {"dP and dV, waited for one group too few",
         {edit("        wgmma_wait<0>();\n        wgmma_settle(state_.d_p());",
               "        wgmma_wait<1>();\n        wgmma_settle(state_.d_p());")},
         one_block(),
         {register_in_flight}},
        {"the next scores",
         {edit("            lse.load(shared_.lse(next), lane_);\n            wgmma_wait<0>();\n",
               "            lse.load(shared_.lse(next), lane_);\n")},
         one_block(),
         {register_in_flight}},
        {"the last dK",
         {edit("            wgmma_wait<0>();\n            settle_d_k();",
               "            settle_d_k();")},
         one_block(),
         {register_in_flight}},
        {"dQ",
         {edit("            wgmma_wait<0>();\n            wgmma_settle(d_q);",
               "            wgmma_settle(d_q);")},
         one_block(),
         {register_in_flight}},
        {"products that are never committed",
         {edit("        wgmma_commit();\n    }\n\n    /// gradient +=",
               "    }\n\n    /// gradient +=")},
         one_block(),
         {register_in_flight}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a descriptor of another matrix is found") {
    const std::vector<PlantedFault> faults = {
        {"a panel of Q and dO half as far",
         {edit("b.advanced(panel * QueryTile::panel_bytes + in_panel)",
               "b.advanced(panel * QueryTile::panel_bytes / 2 + in_panel)")},
         one_wide_block(),
         {}},
        {"a panel of K and V as far as one of Q",
         {edit("panel * KvTile::panel_bytes + in_panel",
               "panel * QueryTile::panel_bytes + in_panel")},
         one_wide_block(),
         {}},
        {"half a step",
         {edit("slice % 4 * k_major_step", "slice % 4 * (k_major_step / 2)")},
         one_block(),
         {}},
        {"keys of the other warpgroup",
         {edit("a_tile + warpgroup_ * keys_per_warpgroup * KvTile::row_bytes", "a_tile")},
         one_wide_block(),
         {}},
        {"a start between the swizzle's patterns",
         {edit("const MatrixDescriptor b(b_tile, layout);",
               "const MatrixDescriptor b(b_tile + 128, layout);")},
         one_block(),
         {invalid_descriptor}},
        {"Q and dO by rows",
         {edit("wgmma_m64k16<Element, head_dim, Major::mn>(",
               "wgmma_m64k16<Element, head_dim, Major::k>(")},
         one_block(),
         {}},
        {"a step of half the queries",
         {edit("b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128))",
               "b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128) / 2)")},
         one_block(),
         {}},
        {"panels of Q and dO as far apart as K's",
         {edit("mn_major_layout(MatrixSwizzle::bytes_128, QueryTile::panel_bytes)",
               "mn_major_layout(MatrixSwizzle::bytes_128, KvTile::panel_bytes)")},
         one_wide_block(),
         {uninitialised_read, copy_in_flight, data_race}},
        {"the first columns of K twice",
         {edit("shared.k() + part * KvTile::panel_bytes, k_layout", "shared.k(), k_layout")},
         one_wide_block(),
         {}},
        {"dS by rows",
         {edit("wgmma_m64k16<Element, d_q_part_columns, Major::mn, Major::mn>(",
               "wgmma_m64k16<Element, d_q_part_columns, Major::k, Major::mn>(")},
         one_block(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: staging of dQ without its barriers and waits is found") {
    const std::vector<PlantedFault> faults = {
        {"written before the store before it has read",
         {edit(
             "            if (thread == 0) {\n                bulk_wait_read<d_q_buffers - 1>();\n"
             "            }\n",
             "")},
         two_blocks(),
         {source_overwritten}},
        {"written while one store too many may read",
         {edit("bulk_wait_read<d_q_buffers - 1>()", "bulk_wait_read<d_q_buffers>()")},
         two_blocks(),
         {source_overwritten}},
        {"written before others know that it was read",
         {edit("            named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n"
               "            const uint32_t staged",
               "            const uint32_t staged")},
         two_blocks(),
         {source_overwritten, data_race},
         20},
        {"stored before it is whole",
         {edit("            named_barrier_synchronise(query_warpgroup_own, warpgroup_size);\n"
               "            if (thread == 0) {\n                sum.add",
               "            if (thread == 0) {\n                sum.add")},
         one_block(),
         {uninitialised_read, data_race, missing_proxy_fence}},
        {"one buffer for all",
         {edit("            buffer ^= 1;\n", "")},
         two_blocks(),
         {source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: dK and dV that leave too early are found") {
    const std::vector<PlantedFault> faults = {
        {"over K that dQ still reads",
         {edit("        named_barrier_synchronise(keys_read, (key_warpgroups + 1) * "
               "warpgroup_size);\n",
               "")},
         one_wide_block(),
         {source_overwritten, data_race},
         10},
        {"over V that the other warpgroup still reads",
         {edit("        named_barrier_synchronise(keys_read, (key_warpgroups + 1) * "
               "warpgroup_size);\n        const int row = warpgroup_ ",
               "        named_barrier_synchronise(keys_read, (key_warpgroups + 1) * "
               "warpgroup_size);\n        const int row = (1 - warpgroup_) ")},
         one_wide_block(),
         {data_race, uninitialised_read, missing_proxy_fence, source_overwritten},
         10},
        {"before the warpgroup has written",
         {edit("            named_barrier_synchronise(key_warpgroup_0, warpgroup_size);\n", "")},
         one_block(),
         {data_race, missing_proxy_fence, uninitialised_read}},
        {"without a wait at the end",
         {edit("            bulk_commit();\n            bulk_wait<0>();\n        }",
               "            bulk_commit();\n        }")},
         one_block(),
         {unfinished_copies}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrongly set up barrier is found") {
    const std::vector<PlantedFault> faults = {
        {"bytes of Q without its LSE",
         {edit("shared.q_full(stage), QueryTile::bytes + statistics_bytes",
               "shared.q_full(stage), QueryTile::bytes")},
         one_block(),
         {transaction_mismatch}},
        {"bytes of dO without delta",
         {edit("shared.d_o_full(stage), QueryTile::bytes + statistics_bytes",
               "shared.d_o_full(stage), QueryTile::bytes")},
         one_block(),
         {transaction_mismatch}},
        {"bytes of K alone",
         {edit("shared.kv_full(), 2 * KvTile::bytes", "shared.kv_full(), KvTile::bytes")},
         one_block(),
         {transaction_mismatch}},
        {"Q empty after one warp",
         {edit("shared.q_empty(stage), key_warps", "shared.q_empty(stage), 1")},
         one_block(),
         {arrival_overflow, source_overwritten, data_race, copy_in_flight, wrong_parity,
          missed_phase}},
        {"dO empty after all but one warp",
         {edit("shared.d_o_empty(stage), key_warps", "shared.d_o_empty(stage), key_warps - 1")},
         one_block(),
         {arrival_overflow, source_overwritten, data_race, copy_in_flight, wrong_parity,
          missed_phase},
         20},
        {"dS full after one warpgroup",
         {edit("shared.d_s_full(buffer), key_warps",
               "shared.d_s_full(buffer), warps_per_warpgroup")},
         one_block(),
         {arrival_overflow, uninitialised_read, data_race, missing_proxy_fence, wrong_parity,
          missed_phase}},
        {"dS empty after as many warps as fill it",
         {edit("shared.d_s_empty(buffer), warps_per_warpgroup",
               "shared.d_s_empty(buffer), key_warps")},
         one_block(),
         {deadlock}},
        {"before other threads know of it",
         {edit("        mbarrier_initialisation_fence();\n    }\n    __syncthreads();",
               "        mbarrier_initialisation_fence();\n    }\n")},
         one_block(),
         {data_race, barrier_misuse, uninitialised_read}},
        {"one named barrier for both key warpgroups",
         {edit("named_barrier_synchronise(key_warpgroup_1, warpgroup_size)",
               "named_barrier_synchronise(key_warpgroup_0, warpgroup_size)")},
         one_block(),
         {data_race, missing_proxy_fence, uninitialised_read, barrier_misuse},
         20},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a wrong mask, scale or place gives wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"the diagonal hidden",
         {edit("if (behind + key > query)", "if (behind + key >= query)")},
         two_blocks(true),
         {}},
        {"keys of the other half of a fragment",
         {edit("const int key = i / 2 % 2 * 8;", "const int key = i / 4 % 2 * 8;")},
         two_blocks(true),
         {}},
        {"the mask of a first query tile alone",
         {edit("* block_q < block_kv) {", "* block_q < block_q) {")},
         two_blocks(true),
         {}},
        {"the first query tile too late",
         {edit("kv_start / block_q : 0", "kv_start / block_q + 1 : 0")},
         two_blocks(true),
         {}},
        {"dK without its scale",
         {edit("pack<Element>(state_.d_k[j] * scale, state_.d_k[j + 1] * scale)",
               "pack<Element>(state_.d_k[j], state_.d_k[j + 1])")},
         one_block(),
         {}},
        {"dS without delta",
         {edit("p.x * (d_p[2 * i] + negated_delta.of(2 * i))", "p.x * d_p[2 * i]")},
         one_block(),
         {}},
        {"LSE of another tile",
         {edit("arguments.negated_lse_log2 + head_row + query_start",
               "arguments.negated_lse_log2 + head_row")},
         one_block(),
         {}},
        {"statistics of another lane",
         {edit("lane % 4 * 16", "(lane + 1) % 4 * 16")},
         one_block(),
         {}},
        {"batch and head exchanged",
         {edit("panel * SharedTile::panel_columns, row, tile.head, tile.batch, barrier",
               "panel * SharedTile::panel_columns, row, tile.batch, tile.head, barrier")},
         {.problem = square_problem(1, 2, 128, 64, false), .config = kernel_preset("wgmma")},
         {}},
        {"every block the first one's",
         {edit("take_ticket(arguments.counters.tickets)", "0u")},
         two_blocks(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a block that waits for what no other tells is found, and one that does not") {
    const std::vector<PlantedFault> faults = {
        {"nobody stores dQ first",
         {edit("stores_(tile.kv_start == 0)", "stores_(false)")},
         two_blocks(),
         {deadlock}},
        {"everybody stores dQ",
         {edit("stores_(tile.kv_start == 0)", "stores_(true)")},
         two_blocks(),
         {}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
