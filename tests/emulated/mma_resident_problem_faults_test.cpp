// Faults planted in what the register-resident mma kernel does beyond equal lengths of whole tiles.
#include <string>
#include <utility>

#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace mma_resident_edits;

ProblemRun run_of(std::int64_t seqlen_q, std::int64_t seqlen_kv, const char* preset = "v4") {
    ProblemRun run{.problem = square_problem(1, 2, seqlen_q, 64, false),
                   .config = kernel_preset(preset)};
    run.problem.problem.seqlen_kv = seqlen_kv;
    run.problem.repeats = 1;
    return run;
}
ProblemRun odd() {
    return run_of(70, 90);
}
/// exp(S − LSE) of a key of zeros is infinite.
ProblemRun low() {
    ProblemRun run = odd();
    run.problem.inputs = verification::InputKind::low_lse;
    return run;
}
ProblemRun banded() {
    ProblemRun run = run_of(160, 200);
    run.problem.problem.window_left = 50;
    run.problem.problem.window_right = 37;
    return run;
}
ProblemRun oblong() {
    ProblemRun run = run_of(96, 160);
    run.problem.problem.causal = true;
    return run;
}
ProblemRun grouped(const char* preset = "v4") {
    ProblemRun run = run_of(70, 64, preset);
    run.problem.problem.heads = 4;
    run.problem.problem.heads_kv = 2;
    return run;
}
ProblemRun narrow() {
    ProblemRun run = run_of(64, 64);
    run.problem.problem.head_dim = 40;
    run.problem.problem.head_dim_v = 56;
    return run;
}

TEST_CASE("mma_resident: rows that do not exist and are not left out give wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"keys",
         {edit("partial_key_tiles && key >= keys_left", "partial_key_tiles && key >= 64")},
         low(),
         {}},
        {"keys of half a fragment",
         {edit("const int key = i / 2 * 8;", "const int key = 0 * i;")},
         low(),
         {}},
        {"statistics of the last rows not written",
         {{"attention_backward_delta.cu", "if (row >= padded_seqlen_q) {",
           "if (row >= arguments.seqlen_q) {"}},
         odd(),
         {}},
        {"statistics of heads that lie as close as their rows",
         {edit("return head * padded_seqlen_q_of(arguments_);",
               "return head * seqlen_q_of(arguments_);")},
         odd(),
         {FaultKind::misaligned}},
        {"dQ of the next head's rows",
         {edit("specialisation::partial_query_tiles ? seqlen_q - row - row_in_fragment : mma_m",
               "0 * seqlen_q + 0 * row + mma_m")},
         odd(),
         {}},
        {"dQ of the first columns alone",
         {edit("fragment * mma_n >= columns_qk", "fragment * mma_n + mma_n >= columns_qk")},
         narrow(),
         {}},
        {"dK of the first columns alone",
         {edit("fragment * mma_n < columns_qk", "(fragment + 1) * mma_n < columns_qk")},
         narrow(),
         {}},
        {"dV in the columns behind it",
         {edit("fragment * mma_n < columns_v", "fragment * mma_n < head_dim")},
         narrow(),
         {}},
        {"delta of the columns of Q alone",
         {{"attention_backward_delta.cu", "lane_in_row * elements_per_lane < columns_v",
           "lane_in_row * elements_per_lane < columns_qk"}},
         narrow(),
         {}},
    };
    require_found(faults);
}

ProblemRun accumulated(const char* preset) {
    ProblemRun run = run_of(70, 64, preset);
    run.problem.problem.gradient_type = GradientType::fp32;
    run.problem.problem.accumulate_gradients = true;
    return run;
}

TEST_CASE("mma_resident: a gradient that is not added or added with another factor is found") {
    const std::string of_d_k =
        "add_row<columns_qk>(d_k_, half, d_k_row, arguments_.softmax_scale);";
    const std::vector<PlantedFault> faults = {
        {"dK", {dropped(of_d_k)}, accumulated("v4"), {}},
        {"dV", {dropped("add_row<columns_v>(d_v_, half, d_v_row, 1);")}, accumulated("v4"), {}},
        {"dK without the scale",
         {edit(of_d_k, "add_row<columns_qk>(d_k_, half, d_k_row, 1);")},
         accumulated("v4"),
         {}},
        {"dQ with the scale of what it holds too",
         {{"attention_backward_rounds/gradient_stores.cuh",
           "return specialisation::accumulates_gradients ? 1.0F : scale;", "return scale;"}},
         accumulated("v5"),
         {}},
        {"dQ of the second eight rows",
         {edit("const float4 held = quad(8, half);", "const float4 held = quad(0, half);")},
         accumulated("v5"),
         {}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: a band of diagonals that is one too wide or too narrow is found") {
    const std::vector<PlantedFault> faults = {
        {"the last diagonal is hidden",
         {edit("after_last + key > query", "after_last + key >= query")},
         oblong(),
         {}},
        {"the one behind it is seen",
         {edit("after_last + key > query", "after_last + key > query + 1")},
         oblong(),
         {}},
        {"the first diagonal of a window is hidden",
         {edit("(after_first + key - query) > diagonals",
               "(after_first + key - query - 1) > diagonals - 1")},
         banded(),
         {}},
        {"the one before it is seen",
         {edit("(after_first + key - query) > diagonals",
               "(after_first + key - query + 1) > diagonals + 1")},
         banded(),
         {}},
        {"the last diagonal of a window is hidden",
         {edit("(after_first + key - query) > diagonals",
               "(after_first + key - query) >= diagonals")},
         banded(),
         {}},
        {"tiles at the last diagonal are not masked",
         {edit("first_key + keys - 1 - query_start > last_diagonal_of",
               "first_key - query_start > last_diagonal_of")},
         banded(),
         {}},
        {"tiles at the first diagonal are not masked",
         {edit("first_key - (query_start + specialisation::block_q - 1) <\n",
               "first_key - query_start <\n")},
         banded(),
         {}},
        {"the first query tile is left out",
         {edit("specialisation::block_q *\n               specialisation::block_q;",
               "specialisation::block_q *\n               specialisation::block_q + "
               "specialisation::block_q;")},
         banded(),
         {}},
        {"the last query tile is left out",
         {edit("keys_end - first_diagonal_of(", "keys_end - 32 - first_diagonal_of(")},
         banded(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: a head of a group that is taken for another gives wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"Q and dO of the first head",
         {edit("key_tile_.head * heads_per_kv_head_of(arguments_) + head_in_group",
               "key_tile_.head * heads_per_kv_head_of(arguments_) + 0 * head_in_group")},
         grouped(),
         {}},
        {"LSE and delta of the first head",
         {edit("heads_per_kv_head_of(arguments_) +\n                head_in_group",
               "heads_per_kv_head_of(arguments_)")},
         grouped(),
         {}},
        {"dQ of the second head over the first",
         {edit("(padded_seqlen_q_of(arguments_, key_tile_) - rows_visited) * head_dim",
               "(0 - rows_visited) * head_dim")},
         grouped(),
         {}},
        {"dQ of the first head stored for both",
         {edit("at / padded_seqlen_q_of(arguments_, conversion) * strides.head", "0")},
         grouped("v5"),
         {}},
        {"places of one head",
         {{"attention_backward_rounds/work.cuh",
           "return heads_per_kv_head_of(arguments) * query_tiles_of(arguments);",
           "return query_tiles_of(arguments);"}},
         grouped("v5"),
         {}},
    };
    require_found(faults);
}

TEST_CASE("mma_resident: keys that nobody sees and that wait for a query tile are found") {
    const std::vector<PlantedFault> faults = {
        {"a block waits for tiles that it has not asked for",
         {edit("if (is_unseen(arguments_, key_tile_)) {", "if (false) {")},
         [] {
             ProblemRun run = run_of(32, 200);
             run.problem.problem.causal = true;
             run.problem.problem.mask_alignment = MaskAlignment::top_left;
             return run;
         }(),
         {FaultKind::deadlock, FaultKind::uninitialised_read}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
