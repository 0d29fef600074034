// Faults planted in what the wgmma kernel does beyond equal lengths of whole tiles.
#include <string>
#include <utility>

#include "kernel_edits.hpp"

namespace backlight::test {

namespace {

using namespace wgmma_edits;
using enum FaultKind;

ProblemRun run_of(std::int64_t seqlen_q, std::int64_t seqlen_kv) {
    ProblemRun run{.problem = square_problem(1, 2, seqlen_q, 64, false),
                   .config = kernel_preset("wgmma")};
    run.problem.problem.seqlen_kv = seqlen_kv;
    run.problem.repeats = 1;
    return run;
}
/// exp(S − LSE) of a key of zeros is infinite.
ProblemRun low() {
    ProblemRun run = run_of(70, 190);
    run.problem.inputs = verification::InputKind::low_lse;
    return run;
}
ProblemRun banded() {
    ProblemRun run = run_of(320, 384);
    run.problem.problem.window_left = 50;
    run.problem.problem.window_right = 37;
    return run;
}
/// Also keys that no query sees.
ProblemRun oblong() {
    ProblemRun run = run_of(128, 384);
    run.problem.problem.causal = true;
    run.problem.problem.mask_alignment = MaskAlignment::top_left;
    return run;
}
ProblemRun grouped() {
    ProblemRun run = run_of(128, 256);
    run.problem.problem.heads = 4;
    run.problem.problem.heads_kv = 2;
    return run;
}
ProblemRun fp32() {
    ProblemRun run = run_of(100, 200);
    run.problem.problem.gradient_type = GradientType::fp32;
    return run;
}

TEST_CASE("wgmma: keys that do not exist and are not hidden give wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"keys",
         {edit("partial_key_tiles && key >= keys_left", "partial_key_tiles && key >= 64")},
         low(),
         {}},
        {"those that one key warpgroup lacks",
         {edit("first_key + keys > seqlen_kv_of", "first_key + keys - 4 > seqlen_kv_of")},
         low(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a band of diagonals that is one too wide or too narrow is found") {
    const std::vector<PlantedFault> faults = {
        {"the last diagonal is hidden",
         {edit("after_last + key > query", "after_last + key >= query")},
         oblong(),
         {}},
        {"the first diagonal of a window is hidden",
         {edit("(after_first + key - query) > diagonals",
               "(after_first + key - query - 1) > diagonals - 1")},
         banded(),
         {}},
        {"the one behind the last is seen",
         {edit("(after_first + key - query) > diagonals",
               "(after_first + key - query) > diagonals + 1")},
         banded(),
         {}},
        {"tiles at the last diagonal are not masked",
         {edit("first_key + keys - 1 - query_start > last_diagonal_of",
               "first_key - query_start > last_diagonal_of")},
         oblong(),
         {}},
        {"a key warpgroup leaves out a tile at the last diagonal",
         {edit("(query_start + specialisation::block_q - 1) <=", "(query_start + 1) <=")},
         banded(),
         {}},
        {"a key warpgroup leaves out a tile at the first diagonal",
         {edit("keys_end - 1 - query_start >=", "first_key - query_start >=")},
         banded(),
         // The first that the block visits: nobody has written dS of it.
         {uninitialised_read}},
        {"dQ of the keys of the other key warpgroup",
         {edit("multiply<slices_each, slices_each>", "multiply<0, slices_each>")},
         banded(),
         {uninitialised_read, data_race, missing_proxy_fence}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a head of a group that is taken for another gives wrong numbers") {
    const std::vector<PlantedFault> faults = {
        {"Q and dO of the first head",
         {edit("query_head(tile.head, visit.head_in_group)", "query_head(tile.head, 0)")},
         grouped(),
         {}},
        {"LSE and delta of the first head",
         {edit("first_row_of(tile, visit.head_in_group)", "first_row_of(tile, 0)")},
         grouped(),
         {}},
        {"dQ of the second head added to the first",
         {edit("visit.head_in_group * query_tiles_of(arguments_, tile) + visit.query_tile",
               "visit.query_tile")},
         grouped(),
         {}},
        {"dQ of the first head stored for both",
         {edit("tile_now / query_tiles,", "0,")},
         grouped(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: steps that the loader posts wrongly or too early are found") {
    const std::vector<PlantedFault> faults = {
        {"keys that nobody sees, waited for",
         {edit("Step::none(is_unseen(arguments_, with_rows(tile)))", "Step::none(false)")},
         oblong(),
         {deadlock, uninitialised_read, data_race}},
        {"dV over V that is still on its way",
         {edit("        wait_for_stores();\n        mbarrier_wait(shared_.v_full(kv_ring_.slot), "
               "kv_ring_.parity);\n    }\n",
               "        wait_for_stores();\n    }\n")},
         [] {
             ProblemRun run = oblong();
             run.problem.problem.seqlen_kv = 180;
             run.problem.problem.seqlen_q = 250;
             return run;
         }(),
         {copy_in_flight, source_overwritten, data_race, uninitialised_read},
         10},
        {"the next step's word over one that is being read",
         {dropped("mbarrier_wait(shared_.q_empty(stage), rings_.query_parity() ^ 1);")},
         grouped(),
         {source_overwritten, data_race, copy_in_flight, arrival_overflow, transaction_mismatch},
         10},
        {"no last step",
         {edit("word |= last_bit;", "word |= 0;")},
         grouped(),
         {deadlock, uninitialised_read, data_race}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: fp32 gradients without their scale are found") {
    const std::vector<PlantedFault> faults = {
        {"dQ without its scale",
         {edit("upper.x * scale_at_store(scale), upper.y * scale_at_store(scale)",
               "upper.x, upper.y")},
         fp32(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("wgmma: a gradient that is not added or added from another row is found") {
    ProblemRun run = fp32();
    run.problem.problem.accumulate_gradients = true;
    const std::vector<PlantedFault> faults = {
        {"dQ", {dropped("upper = added_two(to, upper.x, upper.y, scale);")}, run, {}},
        {"dQ of the row above",
         {edit("lower = added_two(to + 8 * strides.seqlen,", "lower = added_two(to,")},
         run,
         {}},
        {"dK and dV of a pair's second element",
         {dropped("gradient[4 * i + 2 * half + 1] = sums.y;")},
         run,
         {}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
