// Faults planted where shared memory changes hands: between warps, by one thread for its warp, and
// between a thread's own accesses and the asynchronous proxy. Unchanged, each kernel is right, and
// a report of it would be a false one.
#include "small_kernels.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

const std::string barrier = "    __syncthreads();\n";

/// Those, and what a warp's one release does wrong if it comes before all lanes have read.
std::vector<SmallFault> with_early_releases(std::vector<SmallFault> faults) {
    const std::string read = "            __syncwarp();  // read\n";
    const std::string release =
        "            if (lane == 0) {\n                mbarrier_arrive(empty);\n            }\n";
    faults.push_back({"no barrier of the warp", {without(read)}, {data_race}});
    faults.push_back(
        {"the barrier of the warp after the release", {swapped(read, release)}, {data_race}});
    return faults;
}

TEST_CASE("a place given back by one thread before its whole warp has read it is found") {
    const SmallKernel kernel{.name = "release_for_a_warp.cu",
                             .text = R"(
    const uint32_t full = shared + 128;
    const uint32_t empty = shared + 136;
    if (thread == 0) {
        mbarrier_initialise(full, 32);
        mbarrier_initialise(empty, 2);  // one arrival a consumer warp
    }
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (thread < 32) {
            mbarrier_wait(empty, round % 2 ^ 1);
            store_shared(shared + lane * 4, arguments.source[round * 32 + lane]);
            mbarrier_arrive(full);
        } else {
            mbarrier_wait(full, round % 2);
            const uint32_t value = load_shared<uint32_t>(shared + (lane ^ 1) * 4);
            __syncwarp();  // read
            if (lane == 0) {
                mbarrier_arrive(empty);
            }
            if (thread < 64) {
                arguments.out[round * 32 + lane] = value;
            }
        }
    }
)",
                             .threads = 96,
                             .shared_bytes = 144,
                             .source = counted(96),
                             .expected = neighbours_swapped(counted(96))};
    const auto faults = with_early_releases({
        {"released before the read",
         {without("            const uint32_t value = load_shared<uint32_t>(shared + (lane ^ 1) * "
                  "4);\n"),
          {"            if (thread < 64) {\n",
           "            const uint32_t value = load_shared<uint32_t>(shared + (lane ^ 1) * 4);\n"
           "            if (thread < 64) {\n"}},
         {data_race}},
        {"released for one of two warps",
         {{"mbarrier_initialise(empty, 2)", "mbarrier_initialise(empty, 1)"}},
         {data_race, arrival_overflow}},
    });
    require_found(kernel, faults);
}

TEST_CASE("a place given back to a bulk copy before its whole warp has read it is found") {
    const SmallKernel kernel{.name = "release_to_a_copy.cu",
                             .text = R"(
    const uint32_t full = shared + 128;
    const uint32_t empty = shared + 136;
    if (thread == 0) {
        mbarrier_initialise(full, 1);
        mbarrier_initialise(empty, 1);
        mbarrier_initialisation_fence();
    }
    __syncthreads();
    for (int round = 0; round < 3; ++round) {
        if (thread == 0) {
            mbarrier_wait(empty, round % 2 ^ 1);
            mbarrier_arrive_expect_bytes(full, 128);
            bulk_load(shared, arguments.source + round * 32, 128, full);
        } else if (thread >= 32) {
            mbarrier_wait(full, round % 2);
            arguments.out[round * 32 + lane] = load_shared<uint32_t>(shared + (lane ^ 1) * 4);
            fence_shared_before_async_proxy();
            __syncwarp();  // read
            if (lane == 0) {
                mbarrier_arrive(empty);
            }
        }
    }
)",
                             .threads = 64,
                             .shared_bytes = 144,
                             .source = counted(96),
                             .expected = neighbours_swapped(counted(96))};
    const auto faults = with_early_releases({
        {"no wait for the place to be free",
         {without("            mbarrier_wait(empty, round % 2 ^ 1);\n")},
         {arrival_overflow, data_race}},
    });
    require_found(kernel, faults);
}

TEST_CASE("a cp.async that the asynchronous proxy reads without a fence after its wait is found") {
    const SmallKernel kernel{.name = "async_copy_to_proxy.cu",
                             .text = R"(
    async_copy<16>(shared + thread * 16, arguments.source + thread * 4);
    async_copy_commit();
    async_copy_wait<0>();
    fence_shared_before_async_proxy();  // after the wait
    __syncthreads();
    if (thread == 0) {
        bulk_store(arguments.out, shared, 1024);
        bulk_commit();
        bulk_wait<0>();
    }
)",
                             .threads = 64,
                             .shared_bytes = 1024,
                             .source = counted(256),
                             .expected = counted(256)};
    const std::string fence = "    fence_shared_before_async_proxy();  // after the wait\n";
    const std::string wait = "    async_copy_wait<0>();\n";
    const std::string commit = "    async_copy_commit();\n";
    const std::vector<SmallFault> faults = {
        {"the fence between the commit and the wait",
         {swapped(wait, fence)},
         {missing_proxy_fence}},
        {"the fence before the commit", {swapped(commit + wait, fence)}, {missing_proxy_fence}},
        {"no fence", {without(fence)}, {missing_proxy_fence}},
        {"the fence after the barrier", {swapped(fence, barrier)}, {missing_proxy_fence}},
        {"no wait", {without(wait)}, {copy_in_flight, unfinished_copies}},
        {"the wait after the barrier",
         {without(wait), {"    if (thread == 0) {\n", wait + "    if (thread == 0) {\n"}},
         {copy_in_flight, missing_proxy_fence, data_race}},
        {"no barrier",
         {without(barrier)},
         {data_race, copy_in_flight, uninitialised_read, missing_proxy_fence}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a bulk copy over words that were written and not fenced is found") {
    const SmallKernel kernel{.name = "bulk_load_over_stores.cu",
                             .text = R"(
    const uint32_t barrier = shared + 256;
    store_shared(shared + thread * 4, 0u);
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
    }
    fence_shared_before_async_proxy();
    __syncthreads();
    if (thread == 0) {
        mbarrier_arrive_expect_bytes(barrier, 256);
        bulk_load(shared, arguments.source, 256, barrier);
    }
    mbarrier_wait(barrier, 0);
    arguments.out[thread] = load_shared<uint32_t>(shared + thread * 4);
)",
                             .threads = 64,
                             .shared_bytes = 264,
                             .source = counted(64),
                             .expected = counted(64)};
    const std::string fence = "    fence_shared_before_async_proxy();\n";
    const std::vector<SmallFault> faults = {
        {"no fence", {without(fence)}, {missing_proxy_fence}},
        {"the fence after the barrier", {swapped(fence, barrier)}, {missing_proxy_fence}},
        {"the fence by one thread",
         {{fence, "    if (thread == 0) {\n" + fence + "    }\n"}},
         {missing_proxy_fence}},
        {"a fence for global memory",
         {{"fence_shared_before_async_proxy", "fence_global_before_async_proxy"}},
         {missing_proxy_fence}},
        {"a word written after the fence",
         {{fence, fence + "    store_shared(shared + thread * 4, 1u);\n"}},
         {missing_proxy_fence}},
        {"no barrier", {without(barrier)}, {data_race, barrier_misuse}},
        {"written while the copy is under way",
         {{"    mbarrier_wait(barrier, 0);\n",
           "    store_shared(shared + thread * 4, 1u);\n    mbarrier_wait(barrier, 0);\n"}},
         {copy_in_flight, data_race, missing_proxy_fence}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a tensor copy over words that were written and not fenced is found") {
    const SmallKernel kernel{.name = "tensor_load_over_stores.cu",
                             .text = R"(
    const uint32_t barrier = shared + 128;
    store_shared(shared + lane * 4, 0u);
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
    }
    fence_shared_before_async_proxy();
    __syncwarp();
    if (thread == 0) {
        mbarrier_arrive_expect_bytes(barrier, 128);
        tma_load_2d(shared, &arguments.map, 0, 0, barrier);
    }
    mbarrier_wait(barrier, 0);
    arguments.out[lane] = load_shared<uint32_t>(shared + lane * 4);
)",
                             .threads = 32,
                             .shared_bytes = 136,
                             .source = counted(32),
                             .expected = counted(32),
                             .map = fp32_rows(8)};
    const std::string fence = "    fence_shared_before_async_proxy();\n";
    const std::vector<SmallFault> faults = {
        {"no fence", {without(fence)}, {missing_proxy_fence}},
        {"the fence after the barrier of the warp",
         {swapped(fence, "    __syncwarp();\n")},
         {missing_proxy_fence}},
        {"no barrier of the warp", {without("    __syncwarp();\n")}, {data_race, barrier_misuse}},
    };
    require_found(kernel, faults);
}

}  // namespace

}  // namespace backlight::test
