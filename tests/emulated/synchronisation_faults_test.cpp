// Faults planted in small kernels: barriers, mbarriers, registers that change hands.

#include "backlight/error.hpp"
#include "small_kernels.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

TEST_CASE("a named barrier used wrongly is found") {
    Words expected = counted(64);
    std::reverse(expected.begin(), expected.begin() + 32);
    std::reverse(expected.begin() + 32, expected.end());
    const SmallKernel kernel{.name = "named_barriers.cu",
                             .text = R"(
    const bool producer = thread < 32;
    for (int round = 0; round < 2; ++round) {
        if (producer) {
            if (round > 0) {
                named_barrier_synchronise(2, 64);
            }
            store_shared(shared + lane * 4, arguments.source[round * 32 + lane]);
            named_barrier_arrive(1, 64);
        } else {
            named_barrier_synchronise(1, 64);  // full
            arguments.out[round * 32 + lane] = load_shared<uint32_t>(shared + (31 - lane) * 4);
            if (round == 0) {
                named_barrier_arrive(2, 64);
            }
        }
    }
)",
                             .threads = 64,
                             .shared_bytes = 128,
                             .source = counted(64),
                             .expected = expected};
    const std::vector<SmallFault> faults = {
        {"counts that differ",
         {{"named_barrier_arrive(1, 64)", "named_barrier_arrive(1, 96)"}},
         {barrier_misuse}},
        {"a count that never comes",
         {{"named_barrier_arrive(1, 64)", "named_barrier_arrive(1, 96)"},
          {"named_barrier_synchronise(1, 64)", "named_barrier_synchronise(1, 96)"}},
         {deadlock, arrival_overflow}},
        {"a count of part of a warp",
         {{"named_barrier_arrive(1, 64)", "named_barrier_arrive(1, 48)"}},
         {barrier_misuse}},
        {"reached by part of a warp",
         {{"            named_barrier_synchronise(1, 64);  // full\n",
           "            if (lane < 16) { named_barrier_synchronise(1, 64); }\n"}},
         {divergent_collective, data_race, uninitialised_read}},
        {"left out by one thread",
         {{"            named_barrier_arrive(1, 64);\n",
           "            if (lane != 3) { named_barrier_arrive(1, 64); }\n"}},
         {divergent_collective, deadlock}},
        {"another barrier",
         {{"named_barrier_synchronise(1, 64)", "named_barrier_synchronise(3, 64)"}},
         {deadlock, arrival_overflow}},
        {"a barrier that there is not",
         {{"named_barrier_synchronise(1, 64)", "named_barrier_synchronise(16, 64)"}},
         {barrier_misuse}},
        {"no barrier before the value is replaced",
         {without("                named_barrier_synchronise(2, 64);\n"),
          without("                named_barrier_arrive(2, 64);\n")},
         {data_race, arrival_overflow}},
        {"no barrier after the value is written",
         {without("            named_barrier_arrive(1, 64);\n"),
          without("            named_barrier_synchronise(1, 64);  // full\n")},
         {data_race, uninitialised_read, deadlock}},
    };
    require_found(kernel, faults);
}

TEST_CASE("an mbarrier used wrongly is found") {
    const SmallKernel kernel{.name = "mbarriers.cu",
                             .text = R"(
    const uint32_t full = shared + 128;
    const uint32_t empty = shared + 136;
    if (thread == 0) {
        mbarrier_initialise(full, 32);
        mbarrier_initialise(empty, 32);
    }
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (thread < 32) {
            mbarrier_wait(empty, round % 2 ^ 1);
            store_shared(shared + lane * 4, arguments.source[round * 32 + lane]);
            mbarrier_arrive(full);
        } else {
            mbarrier_wait(full, round % 2);
            arguments.out[round * 32 + lane] = load_shared<uint32_t>(shared + (lane ^ 1) * 4);
            mbarrier_arrive(empty);
        }
    }
)",
                             .threads = 64,
                             .shared_bytes = 144,
                             .source = counted(96),
                             .expected = neighbours_swapped(counted(96))};
    const std::vector<SmallFault> faults = {
        {"an arrival too few expected",
         {{"mbarrier_initialise(full, 32)", "mbarrier_initialise(full, 31)"}},
         {data_race, uninitialised_read}},
        {"an arrival too many expected",
         {{"mbarrier_initialise(full, 32)", "mbarrier_initialise(full, 33)"}},
         {deadlock}},
        {"no wait for the place to be free",
         {without("            mbarrier_wait(empty, round % 2 ^ 1);\n")},
         {data_race}},
        {"a phase that passes unseen",
         {without("            mbarrier_wait(empty, round % 2 ^ 1);\n"),
          {"            arguments.out[round", "            if (round == 2) arguments.out[round"}},
         {missed_phase, data_race},
         20},
        {"the first turn waited for",
         {{"mbarrier_wait(empty, round % 2 ^ 1)", "mbarrier_wait(empty, round % 2)"}},
         {deadlock}},
        {"the same parity each time",
         {{"mbarrier_wait(full, round % 2)", "mbarrier_wait(full, 0)"}},
         {wrong_parity, deadlock, data_race}},
        {"a parity that there is not",
         {{"mbarrier_wait(full, round % 2)", "mbarrier_wait(full, round)"}},
         {wrong_parity}},
        {"used before it is there",
         {without("    __syncthreads();\n")},
         {data_race, barrier_misuse}},
        {"initialised twice",
         {{"        mbarrier_initialise(empty, 32);\n",
           "        mbarrier_initialise(empty, 32);\n        mbarrier_initialise(full, 32);\n"}},
         {barrier_misuse}},
        {"no arrivals",
         {{"mbarrier_initialise(full, 32)", "mbarrier_initialise(full, 0)"}},
         {barrier_misuse}},
        {"no mbarrier",
         {{"mbarrier_wait(full, round % 2)", "mbarrier_wait(shared, round % 2)"}},
         {barrier_misuse}},
    };
    require_found(kernel, faults);
}

/// One thread tells another twice; only its wait for an answer keeps the first phase to be seen.
TEST_CASE("a phase that completes and passes before it is looked at is found") {
    const SmallKernel kernel{.name = "missed_phase.cu",
                             .text = R"(
    if (thread == 0) {
        mbarrier_initialise(shared, 1);
        mbarrier_initialise(shared + 8, 1);
    }
    __syncthreads();
    if (thread == 0) {
        mbarrier_arrive(shared);
        mbarrier_wait(shared + 8, 0);
        mbarrier_arrive(shared);
    } else if (thread == 32) {
        mbarrier_wait(shared, 0);
        mbarrier_arrive(shared + 8);
        mbarrier_wait(shared, 1);
        arguments.out[0] = arguments.source[0];
    }
)",
                             .threads = 64,
                             .shared_bytes = 16,
                             .source = {7},
                             .expected = {7}};
    const std::vector<SmallFault> faults = {
        {"no wait for the answer",
         {without("        mbarrier_wait(shared + 8, 0);\n")},
         {missed_phase},
         20},
    };
    require_found(kernel, faults);
}

TEST_CASE("an arrival beyond those that a phase takes is found") {
    const SmallKernel kernel{.name = "arrival_overflow.cu",
                             .text = R"(
    const uint32_t barrier = shared + 128;
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
        mbarrier_arrive_expect_bytes(barrier, 128);
        bulk_load(shared, arguments.source, 128, barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
    arguments.out[lane] = load_shared<uint32_t>(shared + lane * 4);
)",
                             .threads = 32,
                             .shared_bytes = 136,
                             .source = counted(32),
                             .expected = counted(32)};
    const std::vector<SmallFault> faults = {
        {"every thread arrives",
         {{"    __syncthreads();\n", "    __syncthreads();\n    mbarrier_arrive(barrier);\n"}},
         {arrival_overflow}},
        {"bytes announced twice",
         {{"        bulk_load(",
           "        mbarrier_arrive_expect_bytes(barrier, 128);\n        bulk_load("}},
         {arrival_overflow}},
    };
    require_found(kernel, faults);
}

/// Three warpgroups of 168 registers a thread: one gives up what the others take.
TEST_CASE("registers that change hands wrongly are found") {
    const SmallKernel kernel{.name = "registers.cu",
                             .text = R"(
    if (thread < 128) {
        decrease_registers<40>();
    } else {
        increase_registers<232>();
    }
    arguments.out[thread] = arguments.source[thread];
)",
                             .threads = 384,
                             .shared_bytes = 16,
                             .source = counted(384),
                             .expected = counted(384)};
    const std::vector<SmallFault> faults = {
        {"more than is given up",
         {{"increase_registers<232>", "increase_registers<240>"}},
         {deadlock}},
        {"nothing is given up", {without("        decrease_registers<40>();\n")}, {deadlock}},
        {"an increase to less",
         {{"increase_registers<232>", "increase_registers<160>"}},
         {invalid_register_count}},
        {"a decrease to more",
         {{"decrease_registers<40>", "decrease_registers<176>"}},
         {invalid_register_count}},
        {"no multiple of eight",
         {{"decrease_registers<40>()",
           "emulation::machine->set_registers(41, false, emulation::Site::here())"}},
         {invalid_register_count}},
        {"too few",
         {{"decrease_registers<40>()",
           "emulation::machine->set_registers(16, false, emulation::Site::here())"}},
         {invalid_register_count}},
        {"too many",
         {{"increase_registers<232>()",
           "emulation::machine->set_registers(264, true, emulation::Site::here())"}},
         {invalid_register_count}},
        {"by part of a warpgroup",
         {{"if (thread < 128)", "if (thread < 64)"}},
         {divergent_collective, deadlock}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a register count that the hardware does not take is refused where it is written") {
    EmulatedSession session(one_thread(),
                            {{"registers.cu", "decrease_registers<40>", "decrease_registers<41>"}});
    const SmallKernel kernel{.name = "registers.cu",
                             .text = "    decrease_registers<40>();\n",
                             .threads = 128,
                             .shared_bytes = 16,
                             .source = {0},
                             .expected = {0}};
    try {
        run_small_kernel(session, kernel, 1);
        FAIL_CHECK("compiled");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::compile_failed);
        const std::string_view message = error.what();
        CHECK_MESSAGE(message.find("a multiple of 8 from 24 to 256") != std::string_view::npos,
                      error.what());
        // The project's files, not the copies that were compiled.
        CHECK_MESSAGE(message.find("kernel_sources/registers.cu:") != std::string_view::npos,
                      error.what());
        CHECK_MESSAGE(message.find("backlight-emulated-") == std::string_view::npos, error.what());
    }
}

TEST_CASE("a warp that speaks with lanes that are not there is found") {
    const SmallKernel kernel{.name = "shuffles.cu",
                             .text = R"(
    const uint32_t value = __shfl_xor_sync(0xffffffffu, arguments.source[lane], 1);
    arguments.out[lane] = __shfl_xor_sync(0xffffffffu, value, 1);
)",
                             .threads = 32,
                             .shared_bytes = 16,
                             .source = counted(32),
                             .expected = counted(32)};
    const std::vector<SmallFault> faults = {
        {"the first by half a warp",
         {{"    const uint32_t value = __shfl_xor_sync(0xffffffffu, arguments.source[lane], 1);",
           "    uint32_t value = 0;\n    if (lane < 16) { value = __shfl_xor_sync(0xffffffffu, "
           "arguments.source[lane], 1); }"}},
         {divergent_collective}},
        {"a lane that its mask lacks",
         {{"    arguments.out[lane] = __shfl_xor_sync(0xffffffffu,",
           "    arguments.out[lane] = __shfl_xor_sync(0x0000ffffu,"}},
         {divergent_collective}},
        {"from a lane that does not take part",
         {{"    const uint32_t value = __shfl_xor_sync(0xffffffffu, arguments.source[lane], 1);",
           "    uint32_t value = 0;\n    if (lane < 16) { value = __shfl_xor_sync(0x0000ffffu, "
           "arguments.source[lane], 16); }"}},
         {divergent_collective}},
        {"a lane ends early",
         {{"    arguments.out[lane] =",
           "    if (lane == 3) { return; }\n    arguments.out[lane] ="}},
         {divergent_collective}},
    };
    require_found(kernel, faults);
}

TEST_CASE("what comes after an arrival at a named barrier is not covered by it") {
    const SmallKernel kernel{.name = "arrive.cu",
                             .text = R"(
    if (thread < 32) {
        store_shared(shared + lane * 4, arguments.source[lane]);
        named_barrier_arrive(1, 64);
    } else {
        named_barrier_synchronise(1, 64);
        arguments.out[lane] = load_shared<uint32_t>(shared + (lane ^ 1) * 4);
    }
)",
                             .threads = 64,
                             .shared_bytes = 128,
                             .source = counted(32),
                             .expected = neighbours_swapped(counted(32))};
    const std::vector<SmallFault> faults = {
        {"stored after the arrival",
         {without("        store_shared(shared + lane * 4, arguments.source[lane]);\n"),
          {"        named_barrier_arrive(1, 64);\n",
           "        named_barrier_arrive(1, 64);\n"
           "        store_shared(shared + lane * 4, arguments.source[lane]);\n"}},
         {data_race, uninitialised_read}},
        {"an mbarrier where data lies",
         {{"    if (thread < 32) {\n",
           "    if (thread == 0) { mbarrier_initialise(shared + 8, 1); }\n    if (thread < 32) "
           "{\n"}},
         {barrier_misuse, data_race}},
    };
    require_found(kernel, faults);
}

}  // namespace

}  // namespace backlight::test
