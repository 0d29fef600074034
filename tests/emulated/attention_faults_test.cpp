// Faults planted in the attention kernels and the primitives that they include.
#include <algorithm>
#include <cmath>
#include <limits>

#include "half_types.hpp"
#include "planted_faults.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

constexpr const char* mma = "attention_backward_mma.cu";
constexpr const char* delta = "attention_backward_delta.cu";
constexpr const char* convert = "attention_backward_convert.cu";
constexpr const char* swizzle = "primitives/swizzle.cuh";
constexpr const char* reduction = "primitives/reduction.cuh";

/// Two heads of a few tiles.
ProblemRun run_of(const TileConfig& config, std::int64_t seqlen, std::int64_t head_dim = 64,
                  bool causal = false) {
    return {.problem = square_problem(1, 2, seqlen, head_dim, causal), .config = config};
}
ProblemRun one_stage(std::int64_t seqlen = 128, bool causal = false) {
    return run_of(kernel_preset("v2"), seqlen, 64, causal);
}
ProblemRun two_stages(std::int64_t seqlen = 128, bool causal = false) {
    return run_of(kernel_preset("v3"), seqlen, 64, causal);
}
ProblemRun three_stages() {
    return run_of(tile_config({32, 32, 2, 3}), 128);
}

/// What is said of a read of a tile that has not been waited for: the copy has not been asked for,
/// is under way, or has come.
const std::vector<FaultKind> in_no_order = {uninitialised_read, copy_in_flight, data_race};

TEST_CASE("a dropped barrier of the block is found") {
    const SourceEdit after_initialisation{
        mma, "        mbarrier_initialisation_fence();\n    }\n    __syncthreads();",
        "        mbarrier_initialisation_fence();\n    }\n"};
    const SourceEdit before_p_is_read{
        mma, "its barrier may count the next load.\n        __syncthreads();",
        "its barrier may count the next load.\n"};
    const SourceEdit before_d_s_is_read{mma, "// dS is whole.\n        __syncthreads();",
                                        "// dS is whole.\n"};
    const SourceEdit before_tiles_are_overwritten{
        mma, "fence_shared_before_async_proxy();\n            __syncthreads();",
        "fence_shared_before_async_proxy();\n"};
    const std::vector<PlantedFault> faults = {
        {"after initialisation, one stage",
         {after_initialisation},
         one_stage(),
         {data_race, barrier_misuse}},
        {"after initialisation, two stages",
         {after_initialisation},
         two_stages(),
         {data_race, barrier_misuse}},
        {"before P is read, v1",
         {before_p_is_read},
         run_of(kernel_preset("v1"), 128),
         {data_race, uninitialised_read}},
        {"before P is read, one stage",
         {before_p_is_read},
         one_stage(),
         {data_race, uninitialised_read}},
        {"before P is read, two stages",
         {before_p_is_read},
         two_stages(),
         {data_race, uninitialised_read}},
        {"before P is read, three stages",
         {before_p_is_read},
         three_stages(),
         {data_race, uninitialised_read}},
        {"before dS is read, one stage",
         {before_d_s_is_read},
         one_stage(),
         {data_race, uninitialised_read}},
        {"before dS is read, two stages",
         {before_d_s_is_read},
         two_stages(),
         {data_race, uninitialised_read}},
        {"before Q and dO are overwritten",
         {before_tiles_are_overwritten},
         one_stage(),
         {data_race, source_overwritten}},
    };
    require_found(faults);
}

TEST_CASE("a dropped or wrong wait for a copy is found") {
    const SourceEdit no_kv_wait{mma, "    mbarrier_wait(kv_barrier, 0);\n", ""};
    const SourceEdit no_query_wait{
        mma, "        mbarrier_wait(pipeline.barrier(tile), pipeline.parity(tile));\n", ""};
    const auto parity = [](const char* text) {
        return SourceEdit{mma, "return (tile / loads_in_flight) & 1;", text};
    };
    const std::vector<PlantedFault> faults = {
        {"no wait for K and V, one stage", {no_kv_wait}, one_stage(), in_no_order},
        {"no wait for K and V, two stages", {no_kv_wait}, two_stages(), in_no_order},
        {"no wait for Q and dO, one stage", {no_query_wait}, one_stage(), in_no_order},
        {"no wait for Q and dO, two stages", {no_query_wait}, two_stages(), in_no_order},
        {"constant parity, one stage", {parity("return 0;")}, one_stage(), {wrong_parity}, 20},
        {"constant parity, two stages", {parity("return 0;")}, two_stages(), {wrong_parity}, 20},
        {"inverted parity, one stage",
         {parity("return ~(tile / loads_in_flight) & 1;")},
         one_stage(),
         {uninitialised_read, copy_in_flight, data_race},
         20},
        {"parity by stages",
         {parity("return (tile / stages) & 1;")},
         three_stages(),
         {wrong_parity},
         20},
        {"barrier by stages",
         {{mma, "(tile % loads_in_flight) * 8", "(tile % stages) * 8"}},
         two_stages(),
         {barrier_misuse}},
        {"barrier of the wrong tile",
         {{mma, "mbarrier_wait(pipeline.barrier(tile),",
           "mbarrier_wait(pipeline.barrier(tile + 1),"}},
         three_stages(),
         {copy_in_flight, data_race, wrong_parity}},
        {"K's barrier for V's copy",
         {{mma, "mbarrier_wait(kv_barrier, 0);", "mbarrier_wait(pipeline.barrier(0), 0);"}},
         one_stage(),
         {wrong_parity, copy_in_flight, data_race}},
    };
    require_found(faults);
}

TEST_CASE("a wrongly set up barrier is found") {
    const std::vector<PlantedFault> faults = {
        {"no fence after initialisation",
         {{mma, "        mbarrier_initialisation_fence();\n", ""}},
         one_stage(),
         {missing_proxy_fence}},
        {"too few bytes of Q and dO",
         {{mma, "barrier(tile), 2 * QueryTile::bytes", "barrier(tile), QueryTile::bytes"}},
         one_stage(),
         {transaction_mismatch}},
        {"too many bytes of Q and dO",
         {{mma, "barrier(tile), 2 * QueryTile::bytes", "barrier(tile), 2 * QueryTile::bytes + 16"}},
         two_stages(),
         {transaction_mismatch}},
        {"too few bytes of K and V",
         {{mma, "kv_barrier, 2 * KvTile::bytes", "kv_barrier, KvTile::bytes"}},
         one_stage(),
         {transaction_mismatch}},
        {"bytes of K and V that no number of copies makes",
         {{mma, "kv_barrier, 2 * KvTile::bytes", "kv_barrier, 2 * KvTile::bytes - 16"}},
         one_stage(),
         {transaction_mismatch}},
        {"two arrivals expected",
         {{mma, "mbarrier_initialise(pipeline.barrier(i), 1)",
           "mbarrier_initialise(pipeline.barrier(i), 2)"}},
         two_stages(),
         {deadlock}},
        {"initialised by a whole warp",
         {{mma, "if (thread == 0) {", "if (first_warp) {"}},
         one_stage(),
         {data_race, barrier_misuse}},
        {"loaded by every lane",
         {{mma, "    if (first_warp && elect_one()) {\n        mbarrier_arrive",
           "    if (first_warp) {\n        mbarrier_arrive"}},
         one_stage(),
         {arrival_overflow, data_race}},
        {"loaded by one lane of every warp",
         {{mma, "    if (first_warp && elect_one()) {\n        mbarrier_arrive",
           "    if (elect_one()) {\n        mbarrier_arrive"}},
         two_stages(),
         {arrival_overflow, data_race, copy_in_flight}},
    };
    require_found(faults);
}

TEST_CASE("a buffer used too early is found") {
    const std::vector<PlantedFault> faults = {
        {"no fence before the copy over Q and dO",
         {{mma, "            fence_shared_before_async_proxy();\n", ""}},
         one_stage(),
         {source_overwritten}},
        {"no fence before the copy over Q and dO, v1",
         {{mma, "            fence_shared_before_async_proxy();\n", ""}},
         run_of(kernel_preset("v1"), 128, 128),
         {source_overwritten}},
        {"stage reused one phase early",
         {{mma, "q_offset + (tile % stages)", "q_offset + (tile % loads_in_flight)"}},
         two_stages(),
         {data_race, source_overwritten, copy_in_flight}},
        {"copy to the wrong stage",
         {{mma, "load_tile<QueryTile>(d_o_tile(tile)", "load_tile<QueryTile>(d_o_tile(tile + 1)"}},
         two_stages(),
         {uninitialised_read, copy_in_flight, data_race}},
        {"load before the barrier",
         {{mma, "its barrier may count the next load.\n        __syncthreads();",
           "its barrier may count the next load.\n"},
          {mma, "        // dP = dO Vᵀ and dS = P",
           "        __syncthreads();\n        // dP = dO Vᵀ and dS = P"}},
         two_stages(),
         {data_race, source_overwritten, copy_in_flight}},
        {"next tile asked for too far on",
         {{mma, "const int next = query_start + block_q;",
           "const int next = query_start + 2 * block_q;"}},
         one_stage(192),
         {deadlock}},
    };
    require_found(faults);
}

TEST_CASE("a wrong product or mask gives wrong numbers") {
    const ProblemRun causal = one_stage(128, true);
    const std::vector<PlantedFault> faults = {
        {"diagonal hidden", {{mma, "> i / 2 * 8;", ">= i / 2 * 8;"}}, causal, {}},
        {"one key beyond the diagonal seen",
         {{mma, "> i / 2 * 8;", "> i / 2 * 8 + 1;"}},
         causal,
         {}},
        {"first query a tile late",
         {{mma, "kv_start / block_q * block_q : 0", "kv_start / block_q * block_q + block_q : 0"}},
         two_stages(128, true),
         {}},
        {"swizzle of narrow panels for wide ones",
         {{swizzle, "chunk ^ (row % 8)", "chunk ^ ((row / 2) % 4)"}},
         one_stage(),
         {}},
        {"half of the swizzle",
         {{swizzle, "chunk ^ (row % 8)", "chunk ^ (row % 4)"}},
         two_stages(),
         {}},
        {"no swizzle", {{swizzle, "chunk ^ (row % 8)", "chunk"}}, two_stages(), {}},
        {"halves of B exchanged",
         {{mma, "mma_m16n8k16<Element>(gradient[2 * pair], a, b[0], b[1]);",
           "mma_m16n8k16<Element>(gradient[2 * pair], a, b[1], b[0]);"}},
         one_stage(),
         {}},
        {"pairs of B exchanged",
         {{mma, "mma_m16n8k16<Element>(d_q[2 * pair], d_s, k[0], k[1]);",
           "mma_m16n8k16<Element>(d_q[2 * pair], d_s, k[2], k[3]);"}},
         two_stages(),
         {}},
        {"wrong row group of dK and dV",
         {{mma, "key_row = warp / warps_per_key_row_group * mma_m;",
           "key_row = warp % key_row_groups * mma_m;"}},
         one_stage(),
         {}},
        {"dK without its scale",
         {{mma, "pack<Element>(d_k[fragment][half * 2] * arguments.softmax_scale,",
           "pack<Element>(d_k[fragment][half * 2],"}},
         one_stage(),
         {}},
        {"dS without delta",
         {{mma, "(d_p[fragment][i] - statistics[i / 2].delta)", "d_p[fragment][i]"}},
         one_stage(),
         {}},
        {"LSE of the wrong row",
         {{mma, "-statistics[i / 2].lse_log2", "-statistics[0].lse_log2"}},
         one_stage(),
         {}},
        {"batch and head exchanged",
         {{mma, "index.head, index.batch, barrier", "index.batch, index.head, barrier"}},
         one_stage(),
         {}},
        {"a key too far on",
         {{mma, "arguments.k, kv_start, index", "arguments.k, kv_start + 1, index"}},
         two_stages(),
         {}},
        {"dK a row too far on",
         {{mma, "place.key_row + place.fragment_row + half * 8;",
           "place.key_row + place.fragment_row + half * 8 + 1;"}},
         one_stage(),
         {}},
        {"dQ accumulator not zeroed",
         {{delta, "        accumulator[lane_in_row] = float4{0, 0, 0, 0};\n", ""}},
         one_stage(),
         {}},
        {"upper half of the dQ accumulator not zeroed",
         {{delta, "        accumulator[lane_in_row + lanes_per_row] = float4{0, 0, 0, 0};\n", ""}},
         one_stage(),
         {}},
        {"delta of a wrong chunk",
         {{delta, "dot_pair(a.z, b.z)", "dot_pair(a.z, b.w)"}},
         one_stage(),
         {}},
        {"LSE not in base 2",
         {{delta, "row_lse[step] * log2_e", "row_lse[step]"}},
         one_stage(),
         {}},
        {"a sum over half of the lanes", {{reduction, "lanes / 2", "lanes / 4"}}, one_stage(), {}},
        {"dQ without its scale",
         {{convert, "pack<Element>(low.x * scale, low.y * scale)", "pack<Element>(low.x, low.y)"}},
         one_stage(),
         {}},
        {"dQ converted from the wrong half",
         {{convert, "sums[step][1] = source[1];", "sums[step][1] = source[0];"}},
         one_stage(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("a wrong address is found") {
    const std::vector<PlantedFault> faults = {
        {"ldmatrix between chunks",
         {{mma, "return tile.address(row + lane % 16, column + lane / 16 * 8);",
           "return tile.address(row + lane % 16, column + lane / 16 * 8) + 8;"}},
         one_stage(),
         {misaligned}},
        {"store_shared between words",
         {{mma, "softmax_place.fragment_column * sizeof(Element);",
           "softmax_place.fragment_column * sizeof(Element) + 2;"}},
         one_stage(),
         {misaligned}},
        {"shared memory beyond the block's",
         {{mma, "multiply_transposed(d_k, p_d_kv + d_s_from_p, q_d_kv);",
           "multiply_transposed(d_k, p_d_kv + d_s_from_p + ScoreTile::bytes, q_d_kv);"}},
         one_stage(),
         {out_of_bounds, uninitialised_read}},
        {"barrier beyond the block's shared memory",
         {{mma, "query_barrier_offset + (tile", "query_barrier_offset + 8 + (tile"}},
         one_stage(),
         {out_of_bounds}},
        {"reduction between pairs",
         {{mma, "d_q_accumulator + fragment * mma_n;", "d_q_accumulator + fragment * mma_n + 1;"}},
         one_stage(),
         {misaligned}},
        {"reduction beyond the workspace",
         {{mma, "reduce_add_global(address + 8 * head_dim,",
           "reduce_add_global(address + 4096 * head_dim,"}},
         one_stage(),
         {out_of_bounds}},
        {"reduction a row too far on",
         {{mma, "d_q_place.query_row + d_q_place.fragment_row) * head_dim",
           "d_q_place.query_row + d_q_place.fragment_row + 1) * head_dim"}},
         one_stage(),
         {}},
        {"TMA to an address between lines",
         {{mma, "load_tile<KvTile>(v_tile.base,", "load_tile<KvTile>(v_tile.base + 64,"}},
         one_stage(),
         {misaligned}},
    };
    require_found(faults);
}

TEST_CASE("threads that part ways are found") {
    const std::vector<PlantedFault> faults = {
        {"ldmatrix by half a warp",
         {{mma, "            ldmatrix_x4(fragments[slice][pair],",
           "            if (threadIdx.x % 32 < 16) ldmatrix_x4(fragments[slice][pair],"}},
         one_stage(),
         {divergent_collective}},
        {"shuffle by half a warp",
         {{delta, "const float delta = warp_sum<lanes_per_row>(",
           "const float delta = threadIdx.x % 32 < 16 ? 0.0f : warp_sum<lanes_per_row>("}},
         one_stage(),
         // A shuffle goes on without lanes that have ended.
         {}},
        {"mma by half a warp",
         {{mma, "            mma_m16n8k16<Element>(product[2 * pair], a, b[0], b[1]);",
           "            if (threadIdx.x % 32 < 16) mma_m16n8k16<Element>(product[2 * pair], a, "
           "b[0], b[1]);"}},
         one_stage(),
         {divergent_collective}},
        {"elect by one lane",
         {{mma, "    if (first_warp && elect_one()) {\n        mbarrier_arrive",
           "    if (thread == 0 && elect_one()) {\n        mbarrier_arrive"}},
         one_stage(),
         {divergent_collective}},
        {"barrier by part of a warp",
         {{mma, "// dS is whole.\n        __syncthreads();",
           "// dS is whole.\n        if (thread != 37) { __syncthreads(); }"}},
         one_stage(),
         {divergent_collective}},
        {"barrier left out by a warp",
         {{mma, "// dS is whole.\n        __syncthreads();",
           "// dS is whole.\n        if (thread / 32 != 1) { __syncthreads(); }"}},
         two_stages(),
         {deadlock, data_race, uninitialised_read}},
        {"a thread returns early",
         {{mma, "    mbarrier_wait(kv_barrier, 0);\n",
           "    mbarrier_wait(kv_barrier, 0);\n    if (thread == 37) { return; }\n"}},
         one_stage(),
         {divergent_collective}},
        {"a warp returns early",
         {{mma, "    mbarrier_wait(kv_barrier, 0);\n",
           "    mbarrier_wait(kv_barrier, 0);\n    if (thread / 32 == 1) { return; }\n"}},
         one_stage(),
         {uninitialised_read}},
    };
    require_found(faults);
}

TEST_CASE("a kernel that does not wait for the one before it gives wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"main", {{mma, "    wait_for_previous_kernel();\n", ""}}, one_stage(), {}, 20},
        {"convert", {{convert, "    wait_for_previous_kernel();\n", ""}}, one_stage(), {}, 20},
    };
    require_found(faults);
}

/// dK and dV of a problem in which the first query attends to nothing.
tool::Gradients<std::uint16_t> with_an_empty_row(std::vector<SourceEdit> edits) {
    EmulatedSession session(one_thread(), std::move(edits));
    const ProblemRun run = one_stage();
    tool::ProblemCheck check(session.kernels(), run.problem);
    std::vector<float> lse = check.data().download_lse();
    lse[0] = -std::numeric_limits<float>::infinity();
    check.data().upload_lse(lse);
    check.data().poison();
    check.data().run(*session.runtime().backward(run.problem.problem, run.config));
    session.session().synchronise();
    return check.data().gradients();
}

TEST_CASE(
    "a row that attends to nothing counts for nothing and a kernel that forgets it is found") {
    const auto finite = [](const std::vector<std::uint16_t>& bits) {
        return std::ranges::all_of(bits, [](std::uint16_t value) {
            return std::isfinite(from_bits(DataType::bf16, value));
        });
    };
    const auto gradients = with_an_empty_row({});
    CHECK(finite(gradients.d_k));
    CHECK(finite(gradients.d_v));
    for (std::size_t column = 0; column < 64; ++column) {
        CHECK(from_bits(DataType::bf16, gradients.d_q[column]) == 0);
    }
    const auto wrong = with_an_empty_row(
        {{delta, "attends ? row_lse[step] * log2_e : infinity()", "row_lse[step] * log2_e"}});
    CHECK_FALSE(finite(wrong.d_k));
    CHECK_FALSE(finite(wrong.d_v));
}

}  // namespace

}  // namespace backlight::test
