// Faults planted in what packed sequences need, and that the emulated device finds them.
#include <string>
#include <utility>
#include <vector>

#include "kernel_edits.hpp"
#include "planted_faults.hpp"
#include "verification/packing.hpp"

namespace backlight::test {

namespace {

// Of the delta kernel, which prepares sequences, and of the main kernel.
constexpr EditsOf prepared{"attention_backward_delta"};
constexpr EditsOf resident = mma_resident_edits::edit;
constexpr EditsOf wgmma = wgmma_edits::edit;

ProblemRun run_of(const char* preset = "v4") {
    const AttentionProblem problem{
        .batch = 5, .heads = 2, .seqlen_q = 90, .seqlen_kv = 100, .head_dim = 64};
    ProblemRun run{.problem = {.problem = problem, .repeats = 1}, .config = kernel_preset(preset)};
    run.problem.packing = verification::make_packing(problem, verification::PackingKind::padded);
    run.problem.problem = verification::packed_problem(problem, run.problem.packing);
    return run;
}

TEST_CASE("packed sequences: faults in their tensor maps are found") {
    const std::vector<PlantedFault> faults = {
        {"a map that is not acquired",
         {resident("acquire_tensor_map(&map_of(arguments_.q, "
                   "static_cast<PackedOperandIndex>(operand)));",
                   ";")},
         run_of(),
         {FaultKind::missing_proxy_fence}},
        {"a map that ends where the tensor does",
         {prepared("tensor_map_set_extent<1>(place, rows.length);", ";")},
         run_of(),
         {FaultKind::out_of_bounds}},
        {"maps of another sequence",
         {resident("arguments_.packed.maps[key_tile_.batch * packed_operands + operand]",
                   "arguments_.packed.maps[operand]")},
         run_of(),
         {}},
    };
    require_found(faults);
}

TEST_CASE("packed sequences: tickets in another order than turns are a deadlock") {
    ProblemRun run = run_of();
    run.problem.problem.deterministic = true;
    const std::vector<PlantedFault> faults = {
        {"tickets in the other order",
         {resident("kv_tile = sequence.key_tiles - 1 - kv_tile;", ";")},
         run,
         {FaultKind::deadlock}},
    };
    require_found(faults);
}

TEST_CASE("packed sequences: faults of wgmma in their tensor maps and places are found") {
    const std::vector<PlantedFault> faults = {
        {"maps of inputs that are not acquired",
         {wgmma("acquire_tensor_map(arguments_.packed.maps + tile.batch * packed_operands + "
                "operand);",
                ";")},
         run_of("wgmma"),
         {FaultKind::missing_proxy_fence}},
        {"maps of dK and dV that are not acquired",
         {wgmma("        acquire_tensor_map(&map);", "        ;")},
         run_of("wgmma"),
         {FaultKind::missing_proxy_fence}},
        {"dK and dV of a sequence without keys",
         {wgmma("is_store_thread() && (!packed || tile.batch >= 0)", "is_store_thread()")},
         run_of("wgmma"),
         {FaultKind::invalid_tensor_map, FaultKind::misaligned, FaultKind::out_of_bounds,
          FaultKind::missing_proxy_fence}},
        {"a piece of work that is given back before it is done",
         {wgmma("        if constexpr (!packed) {\n"
                "            // None may",
                "        {\n"
                "            // None may")},
         run_of("wgmma"),
         {FaultKind::arrival_overflow, FaultKind::deadlock, FaultKind::data_race,
          FaultKind::missed_phase, FaultKind::wrong_parity},
         5},
    };
    require_found(faults);
}

TEST_CASE("packed sequences: faults in which rows they have are found") {
    const std::vector<PlantedFault> faults = {
        {"a sequence of queries alone without a tile",
         {prepared("min(q.length, 1)", "0")},
         run_of("v5"),
         {}},
        {"lengths without seqused",
         {prepared("if (rows.seqused != nullptr) {", "if (rows.total < 0) {")},
         run_of(),
         {}},
        {"dK and dV at the tensor's begin",
         {resident("(packed ? key_tile_.kv_begin : 0)", "0")},
         run_of(),
         {}},
        {"dQ at the tensor's begin",
         {resident("d_q + conversion.q_begin * strides.seqlen", "d_q")},
         run_of("v5"),
         {}},
        {"a query less where there are more than a tile's",
         {prepared("entry.seqlen_q = q.length;", "entry.seqlen_q = q.length - (q.length > 64);")},
         run_of(),
         {}},
    };
    require_found(faults);
}

}  // namespace

}  // namespace backlight::test
