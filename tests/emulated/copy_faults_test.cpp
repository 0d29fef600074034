// Faults planted in small kernels: asynchronous copies and the barriers that complete them.
#include <bit>

#include "half_types.hpp"
#include "small_kernels.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

/// Two blocks of 32 rows of eight bf16 elements each, as ldmatrix.x4 reads them, and the product
/// that the kernel makes: rows of the second times rows of the first, which lie as B's columns do.
struct LateFragments {
    static constexpr std::size_t block_words = 32 * 4;

    static double element(std::size_t block, std::size_t row, std::size_t column) {
        return static_cast<double>((row * 5 + column * 3 + block * 7) % 11) - 5;
    }
    static Words source() {
        Words words(2 * block_words);
        for (std::size_t block = 0; block < 2; ++block) {
            for (std::size_t row = 0; row < 32; ++row) {
                for (std::size_t column = 0; column < 8; ++column) {
                    words[block * block_words + row * 4 + column / 2] |=
                        std::uint32_t{to_bits(DataType::bf16, element(block, row, column))}
                        << column % 2 * 16;
                }
            }
        }
        return words;
    }
    /// Of each lane its four sums.
    static Words expected() {
        Words words(32 * 4);
        for (std::size_t lane = 0; lane < 32; ++lane) {
            for (std::size_t i = 0; i < 4; ++i) {
                const std::size_t row = lane / 4 + i / 2 * 8;
                const std::size_t column = lane % 4 * 2 + i % 2;
                double sum = 0;
                for (std::size_t k = 0; k < 16; ++k) {
                    sum += element(1, (row / 8 + k / 8 * 2) * 8 + row % 8, k % 8) *
                           element(0, k / 8 * 8 + column, k % 8);
                }
                words[lane * 4 + i] = std::bit_cast<std::uint32_t>(static_cast<float>(sum));
            }
        }
        return words;
    }
};

// What happened to a prototype on a GPU: fragments that are loaded once and used in every tile may
// be read as late as their first use, which is after the copy of the next tile over their source.
TEST_CASE("a fragment read late over which a copy comes is found") {
    const SmallKernel kernel{.name = "late_fragments.cu",
                             .text = R"(
    const uint32_t barrier = shared + 512;
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialise(barrier + 8, 1);
        mbarrier_initialisation_fence();
        mbarrier_arrive_expect_bytes(barrier, 512);
        bulk_load(shared, arguments.source, 512, barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
    OperandRegister v[4];
    ldmatrix_x4(v, shared + lane * 16);
    fence_shared_before_async_proxy();
    __syncthreads();
    if (thread == 0) {
        mbarrier_arrive_expect_bytes(barrier + 8, 512);
        bulk_load(shared, arguments.source + 128, 512, barrier + 8);
    }
    mbarrier_wait(barrier + 8, 0);
    OperandRegister d_o[4];
    ldmatrix_x4(d_o, shared + lane * 16);
    AccumulatorRegister d_p[4] = {};
    mma_m16n8k16<bf16>(d_p, d_o, v[0], v[1]);
    if (thread < 32) {
        for (int i = 0; i < 4; ++i) {
            arguments.out[lane * 4 + i] = __float_as_uint(d_p[i]);
        }
    }
)",
                             .threads = 64,
                             .shared_bytes = 528,
                             .source = LateFragments::source(),
                             .expected = LateFragments::expected()};
    const std::vector<SmallFault> faults = {
        {"no fence between the reads and the copy",
         {without("    fence_shared_before_async_proxy();\n")},
         {source_overwritten},
         1},
        {"no barrier between the reads and the copy",
         {{"    fence_shared_before_async_proxy();\n    __syncthreads();\n",
           "    fence_shared_before_async_proxy();\n"}},
         {data_race}},
        {"no wait for the second tile",
         {without("    mbarrier_wait(barrier + 8, 0);\n")},
         {copy_in_flight, data_race}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a bulk store whose source is not ready or not left alone is found") {
    const SmallKernel kernel{.name = "bulk_store.cu",
                             .text = R"(
    store_shared(shared + thread * 4, arguments.source[thread]);
    fence_shared_before_async_proxy();
    __syncthreads();  // written
    if (thread == 0) {
        bulk_store(arguments.out, shared, 512);
        bulk_commit();
        bulk_wait_read<0>();
    }
    __syncthreads();  // read
    store_shared(shared + thread * 4, 0xffffffffu);
    if (thread == 0) {
        bulk_wait<0>();
    }
)",
                             .threads = 128,
                             .shared_bytes = 512,
                             .source = counted(128),
                             .expected = counted(128)};
    const std::vector<SmallFault> faults = {
        {"no proxy fence",
         {without("    fence_shared_before_async_proxy();\n")},
         {missing_proxy_fence}},
        {"the fence after the barrier",
         {swapped("    fence_shared_before_async_proxy();\n",
                  "    __syncthreads();  // written\n")},
         {missing_proxy_fence}},
        {"no barrier before the store",
         {without("    __syncthreads();  // written\n")},
         {data_race, uninitialised_read}},
        {"source written before it has been read",
         {without("        bulk_wait_read<0>();\n")},
         {source_overwritten}},
        {"source written while a group may be pending",
         {{"bulk_wait_read<0>", "bulk_wait_read<1>"}},
         {source_overwritten}},
        {"no barrier after the read",
         {without("    __syncthreads();  // read\n")},
         {data_race, source_overwritten}},
        {"ended while the store reads",
         {without("        bulk_wait_read<0>();\n"), without("        bulk_wait<0>();\n")},
         {unfinished_copies}},
        {"not committed",
         {without("        bulk_commit();\n")},
         {unfinished_copies, source_overwritten}},
        {"a size that is no multiple of 16",
         {{"bulk_store(arguments.out, shared, 512)", "bulk_store(arguments.out, shared, 500)"}},
         {misaligned}},
        {"beyond the output",
         {{"bulk_store(arguments.out, shared, 512)", "bulk_store(arguments.out + 4, shared, 512)"}},
         {out_of_bounds}},
        {"too little",
         {{"bulk_store(arguments.out, shared, 512)", "bulk_store(arguments.out, shared, 496)"}},
         {}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a cp.async that is not waited for or brings too much is found") {
    // Lane l has l % 5 words of its own; the rest of its 16 bytes are zero.
    Words expected(32 * 4);
    for (std::uint32_t i = 0; i < expected.size(); ++i) {
        expected[(i / 4 ^ 1) * 4 + i % 4] = i % 4 < i / 4 % 5 ? i + 1 : 0;
    }
    const SmallKernel kernel{.name = "async_copy.cu",
                             .text = R"(
    const int bytes = lane % 5 * 4;
    async_copy<16>(shared + lane * 16, arguments.source + lane * 4, bytes);
    async_copy_commit();
    async_copy_wait<0>();
    __syncwarp();
    const int other = lane ^ 1;
    const uint4 value = load_shared<uint4>(shared + other * 16);
    reinterpret_cast<uint4*>(arguments.out)[lane] = value;
)",
                             .threads = 32,
                             .shared_bytes = 512,
                             .source = counted(32 * 4),
                             .expected = expected};
    const std::vector<SmallFault> faults = {
        {"no wait", {without("    async_copy_wait<0>();\n")}, {copy_in_flight}},
        {"a group may be pending",
         {{"async_copy_wait<0>", "async_copy_wait<1>"}},
         {copy_in_flight}},
        {"not committed", {without("    async_copy_commit();\n")}, {copy_in_flight}},
        {"no barrier of the warp",
         {without("    __syncwarp();\n")},
         {data_race, copy_in_flight, uninitialised_read}},
        {"no zero fill", {{"lane * 4, bytes)", "lane * 4, 16)"}}, {}},
        {"beyond the source",
         {{"arguments.source + lane * 4,", "arguments.source + 4 + lane * 4,"},
          {"lane % 5 * 4", "16"}},
         {out_of_bounds}},
        {"between 16-byte pieces",
         {{"arguments.source + lane * 4,", "arguments.source + 1 + lane * 4,"}},
         {misaligned}},
        {"beyond the block's shared memory",
         {{"async_copy<16>(shared +", "async_copy<16>(shared + 16 +"}},
         {out_of_bounds}},
    };
    require_found(kernel, faults);
}

/// Six rows of four fp32 numbers, of which eight are loaded.
TEST_CASE("a wrong tensor copy is found") {
    Words expected = counted(6 * 4);
    expected.resize(8 * 4);
    const SmallKernel kernel{.name = "tensor_load.cu",
                             .text = R"(
    const uint32_t barrier = shared + 256;
    if (thread == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
        mbarrier_arrive_expect_bytes(barrier, 128);
        tma_load_2d(shared, &arguments.map, 0, 0, barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
    arguments.out[thread] = load_shared<uint32_t>(shared + thread * 4);
)",
                             .threads = 32,
                             .shared_bytes = 264,
                             .source = counted(6 * 4),
                             .expected = expected,
                             .map = fp32_rows(6)};
    const std::vector<SmallFault> faults = {
        {"only the bytes within bounds expected",
         {{"barrier, 128)", "barrier, 96)"}},
         {transaction_mismatch}},
        {"rows beyond the end kept within bounds",
         {{"&arguments.map, 0, 0,", "&arguments.map, 0, -2,"}},
         {}},
        {"a first coordinate between 16-byte pieces",
         {{"&arguments.map, 0, 0,", "&arguments.map, 1, 0,"}},
         {misaligned}},
        {"a row too far on", {{"&arguments.map, 0, 0,", "&arguments.map, 0, 1,"}}, {}},
        {"a copy of another rank",
         {{"tma_load_2d(shared, &arguments.map, 0, 0, barrier)",
           "tma_load_3d(shared, &arguments.map, 0, 0, 0, barrier)"}},
         {invalid_tensor_map}},
        {"no tensor map",
         {{"&arguments.map, 0, 0,", "arguments.source, 0, 0,"}},
         {invalid_tensor_map}},
        {"shared address of no line",
         {{"tma_load_2d(shared,", "tma_load_2d(shared + 64,"}},
         {misaligned}},
        {"over the barrier",
         {{"tma_load_2d(shared,", "tma_load_2d(shared + 256,"}},
         {out_of_bounds, invalid_tensor_map}},
        {"asked for by every thread",
         {{"        tma_load_2d(shared, &arguments.map, 0, 0, barrier);\n    }\n",
           "    }\n    tma_load_2d(shared, &arguments.map, 0, 0, barrier);\n"}},
         {data_race, barrier_misuse, copy_in_flight}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a wrong tensor store is found") {
    const SmallKernel kernel{.name = "tensor_store.cu",
                             .text = R"(
    store_shared(shared + thread * 4, arguments.source[thread]);
    fence_shared_before_async_proxy();
    __syncthreads();
    if (thread == 0) {
        tma_store_2d(&arguments.map, 0, 0, shared);
        bulk_commit();
        bulk_wait<0>();
    }
)",
                             .threads = 32,
                             .shared_bytes = 128,
                             .source = counted(32),
                             .expected = counted(32),
                             .map = fp32_rows(8),
                             .map_of_output = true};
    const std::vector<SmallFault> faults = {
        {"no proxy fence",
         {without("    fence_shared_before_async_proxy();\n")},
         {missing_proxy_fence}},
        {"a fence for global memory",
         {{"fence_shared_before_async_proxy", "fence_global_before_async_proxy"}},
         {missing_proxy_fence}},
        {"no barrier", {without("    __syncthreads();\n")}, {data_race, uninitialised_read}},
        {"no wait", {without("        bulk_wait<0>();\n")}, {unfinished_copies}},
        {"a row too far on", {{"&arguments.map, 0, 0,", "&arguments.map, 0, 1,"}}, {}},
    };
    require_found(kernel, faults);
}

}  // namespace

}  // namespace backlight::test
