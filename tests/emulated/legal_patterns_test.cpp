// Patterns that are right, and that a stricter checker would report: none may be.
#include <cstdint>
#include <vector>

#include "small_kernels.hpp"

namespace backlight::test {

namespace {

void require_clean(const SmallKernel& kernel) {
    EmulatedSession session;
    const Outcome outcome = run_small_kernel(session, kernel, 40);
    CHECK_MESSAGE(outcome.passed(), kernel.name << ": " << to_string(outcome));
}

TEST_CASE("threads that read and write words of their own are not reported") {
    require_clean({.name = "own_words.cu",
                   .text = R"(
    for (int round = 0; round < 3; ++round) {
        store_shared(shared + thread * 4, arguments.source[thread] + round);
        arguments.out[thread] = load_shared<uint32_t>(shared + thread * 4);
    }
)",
                   .threads = 64,
                   .shared_bytes = 256,
                   .source = counted(64),
                   .expected = [] {
                       Words words = counted(64);
                       for (std::uint32_t& word : words) {
                           word += 2;
                       }
                       return words;
                   }()});
}

TEST_CASE("a wait for a phase that was waited for before passes") {
    require_clean({.name = "waited_twice.cu",
                   .text = R"(
    if (thread == 0) {
        mbarrier_initialise(shared + 128, 32);
    }
    __syncthreads();
    if (thread < 32) {
        store_shared(shared + lane * 4, arguments.source[lane]);
        mbarrier_arrive(shared + 128);
    } else {
        for (int round = 0; round < 3; ++round) {
            mbarrier_wait(shared + 128, 0);
            arguments.out[lane] = load_shared<uint32_t>(shared + (lane ^ 1) * 4);
        }
    }
)",
                   .threads = 64,
                   .shared_bytes = 136,
                   .source = counted(32),
                   .expected = neighbours_swapped(counted(32))});
}

TEST_CASE("a look at a phase that cannot complete yet comes back") {
    require_clean({.name = "peek.cu",
                   .text = R"(
    const uint32_t full = shared + 128;
    const uint32_t empty = shared + 136;
    if (thread == 0) {
        mbarrier_initialise(full, 32);
        mbarrier_initialise(empty, 32);
    }
    __syncthreads();
    for (int round = 0; round < 2; ++round) {
        if (thread < 32) {
            mbarrier_wait(empty, round % 2 ^ 1);
            store_shared(shared + lane * 4, arguments.source[round * 32 + lane]);
            mbarrier_arrive(full);
        } else {
            mbarrier_wait(full, round % 2);
            arguments.out[round * 32 + lane] = load_shared<uint32_t>(shared + lane * 4);
            // The producer cannot have come further: its place is not free.
            const bool ahead = round == 0 && mbarrier_try_wait(full, 1);
            mbarrier_arrive(empty);
            arguments.out[round * 32 + lane] += ahead ? 100 : 0;
        }
    }
)",
                   .threads = 64,
                   .shared_bytes = 144,
                   .source = counted(64),
                   .expected = counted(64)});
}

TEST_CASE(
    "lanes that have ended or do not exist are not waited for by votes and barriers of a warp") {
    require_clean({.name = "ended_lanes.cu",
                   .text = R"(
    if (lane >= 20) {
        return;
    }
    store_shared(shared + thread * 4, arguments.source[thread]);
    __syncwarp();
    const bool all = __all_sync(0xffffffffu, 1) != 0 ||
                     __ballot_sync(0xffffffffu, 1) == 0x000fffffu || thread >= 32;
    arguments.out[thread] = all ? load_shared<uint32_t>(shared + thread * 4) : 0;
)",
                   .threads = 33,
                   .shared_bytes = 160,
                   .source = counted(33),
                   .expected = [] {
                       Words words = counted(33);
                       for (std::size_t i = 20; i < 32; ++i) {
                           words[i] = 0xffffffffU;
                       }
                       return words;
                   }()});
}

TEST_CASE("a group that copies nothing need not be waited for") {
    require_clean({.name = "empty_group.cu",
                   .text = R"(
    async_copy<16>(shared + lane * 16, arguments.source + lane * 4, 16);
    async_copy_commit();
    async_copy_wait<0>();
    async_copy_commit();
    arguments.out[lane] = load_shared<uint32_t>(shared + lane * 16);
)",
                   .threads = 32,
                   .shared_bytes = 512,
                   .source = counted(128),
                   .expected = [] {
                       Words words(32);
                       for (std::size_t i = 0; i < words.size(); ++i) {
                           words[i] = static_cast<std::uint32_t>(4 * i + 1);
                       }
                       return words;
                   }()});
}

}  // namespace

}  // namespace backlight::test
