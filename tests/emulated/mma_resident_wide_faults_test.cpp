// Faults planted in the kernel for head dimensions above 128: where it differs from that for
// others.
#include <string>
#include <utility>

#include "planted_faults.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

SourceEdit edit(std::string from, std::string to) {
    return edit_of("attention_backward_mma_resident_wide", std::move(from), std::move(to));
}
SourceEdit dropped(std::string text) {
    return edit(std::move(text), ";");
}

/// Four query tiles, so that every place is used again.
ProblemRun two_stages() {
    ProblemRun run{.problem = square_problem(1, 1, 128, 192, false), .config = kernel_preset("v4")};
    run.problem.problem.head_dim_v = 128;
    run.problem.repeats = 1;
    run.config.warps = 8;
    return run;
}
ProblemRun one_stage() {
    ProblemRun run = two_stages();
    run.config.stages = 1;
    return run;
}

const std::vector<FaultKind> unordered = {uninitialised_read, data_race, barrier_misuse};
const std::vector<FaultKind> over_its_readers = {source_overwritten, data_race, copy_in_flight,
                                                 arrival_overflow};

TEST_CASE("wide heads: P that is not handed over in order is found") {
    const std::vector<PlantedFault> faults = {
        {"the key warp does not wait",
         {dropped("named_barrier_synchronise(pair_barrier(pair()), pair_threads);")},
         two_stages(),
         unordered},
        {"the value warp does not arrive",
         {dropped("named_barrier_arrive(pair_barrier(pair()), pair_threads);")},
         two_stages(),
         {deadlock}},
        {"the value warp arrives for another pair",
         {edit("named_barrier_arrive(pair_barrier(pair())",
               "named_barrier_arrive(pair_barrier(pair() ^ 1)")},
         two_stages(),
         unordered,
         20},
        {"P in the place of another pair",
         {edit("store_shared(shared_.p(pair(), lane_)",
               "store_shared(shared_.p(pair() ^ 1, lane_)")},
         two_stages(),
         unordered,
         20},
    };
    require_found(faults);
}

TEST_CASE("wide heads: a copy over what may still be read is found") {
    const std::vector<PlantedFault> faults = {
        {"dO in its only place",
         {edit("end_reads();\n            arrive(shared_.d_o_read())",
               "arrive(shared_.d_o_read())")},
         one_stage(),
         over_its_readers,
         20},
        {"dO, asked for before all value warps are done with it",
         {dropped("mbarrier_wait(shared_.d_o_read(), SharedMemory::parity(tile_));")},
         one_stage(),
         over_its_readers,
         20},
        {"dO of two places in one",
         {edit("tile % d_o_stages * (d_o_second_offset - d_o_first_offset)", "0 * tile")},
         two_stages(),
         over_its_readers,
         20},
    };
    require_found(faults);
}

TEST_CASE("wide heads: dS that is read too soon is found and so are parts that are not shared") {
    const std::vector<PlantedFault> faults = {
        {"dS, by the value warps",
         {edit("if (!loads()) {\n            wait_for_d_s();", "{")},
         two_stages(),
         {uninitialised_read, data_race},
         20},
        {"dQ of the first columns by all warps",
         {edit("0, d_q_column(), lane()", "0, 0, lane()")},
         two_stages(),
         {}},
        {"dQ of the first panel alone",
         {edit("(first + column / 2) * (64 / mma_n)", "(0 * first) * (64 / mma_n)")},
         two_stages(),
         {}},
        {"the accumulator of a narrower head",
         {{"attention_backward_delta.cu", "quad < head_dim / 4", "quad < head_dim / 8"}},
         two_stages(),
         {}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
