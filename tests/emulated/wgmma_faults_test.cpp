// Faults planted in small kernels: warpgroup products.
#include <bit>

#include "half_types.hpp"
#include "small_kernels.hpp"

namespace backlight::test {

namespace {

using enum FaultKind;

constexpr std::size_t m = 64;
constexpr std::size_t n = 32;
constexpr std::size_t depth = 64;

/// B's columns are the first 32 rows, then come A's rows.
double element(std::size_t row, std::size_t k) {
    return static_cast<double>((row * 7 + k * 5 + row * k) % 13) - 6;
}

Words operands() {
    Words words((m + n) * depth / 2);
    for (std::size_t row = 0; row < m + n; ++row) {
        for (std::size_t k = 0; k < depth; ++k) {
            words[(row * depth + k) / 2] |= std::uint32_t{to_bits(DataType::bf16, element(row, k))}
                                            << k % 2 * 16;
        }
    }
    return words;
}

Words product() {
    Words words(m * n);
    for (std::size_t row = 0; row < m; ++row) {
        for (std::size_t column = 0; column < n; ++column) {
            double sum = 0;
            for (std::size_t k = 0; k < depth; ++k) {
                sum += element(n + row, k) * element(column, k);
            }
            words[row * n + column] = std::bit_cast<std::uint32_t>(static_cast<float>(sum));
        }
    }
    return words;
}

TEST_CASE("a wrong product of operands in shared memory is found") {
    const SmallKernel kernel{.name = "wgmma_shared.cu",
                             .text = R"(
    for (int chunk = thread; chunk < 96 * 8; chunk += 128) {
        const int row = chunk / 8;
        store_shared(shared + row * 128 + (chunk % 8 ^ row % 8) * 16,
                     reinterpret_cast<const uint4*>(arguments.source)[chunk]);
    }
    fence_shared_before_async_proxy();
    __syncthreads();  // written
    const MatrixDescriptor b(shared, k_major_layout(MatrixSwizzle::bytes_128));
    const MatrixDescriptor a(shared + 4096, k_major_layout(MatrixSwizzle::bytes_128));
    AccumulatorRegister d[16];
    for (int i = 0; i < 16; ++i) {
        d[i] = 0.0f;
    }
    wgmma_fence();
    for (int step = 0; step < 4; ++step) {
        wgmma_m64k16<bf16, 32, Major::k, Major::k>(d, a.advanced(step * k_major_step),
                                                   b.advanced(step * k_major_step), true);
    }
    wgmma_commit();
    wgmma_wait<0>();  // before the sums are used
    wgmma_settle(d);
    __syncthreads();  // read
    store_shared(shared + thread * 4, 0xffffffffu);
    for (int i = 0; i < 16; ++i) {
        const int row = thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        arguments.out[row * 32 + column] = __float_as_uint(d[i]);
    }
)",
                             .threads = 128,
                             .shared_bytes = 96 * 128,
                             .source = operands(),
                             .expected = product()};
    const char* const wait = "    wgmma_wait<0>();  // before the sums are used\n";
    const std::vector<SmallFault> faults = {
        {"no wgmma fence", {{"    wgmma_fence();\n", ""}}, {missing_wgmma_fence}},
        {"an accumulator set after the fence",
         {{"    wgmma_fence();\n", "    wgmma_fence();\n    d[3] = 0.0f;\n"}},
         {missing_wgmma_fence}},
        {"an accumulator used between products",
         {{"    wgmma_commit();\n", "    d[3] += 0.0f;\n    wgmma_commit();\n"}},
         {register_in_flight}},
        // The last stores of the kernel then come while sources may still be read, too.
        {"sums used before the wait", {{wait, ""}}, {register_in_flight, source_overwritten}},
        {"sums used while the group may be pending",
         {{"wgmma_wait<0>()", "wgmma_wait<1>()"}},
         {register_in_flight, source_overwritten}},
        {"not committed",
         {{"    wgmma_commit();\n", ""}},
         {register_in_flight, source_overwritten}},
        {"ended without a wait",
         {{wait, ""}, {"        arguments.out[row * 32 + column] = __float_as_uint(d[i]);\n", ""}},
         {unfinished_copies, source_overwritten}},
        {"source overwritten before the wait",
         {{wait, ""},
          {"    store_shared(shared + thread * 4, 0xffffffffu);\n",
           "    store_shared(shared + thread * 4, 0xffffffffu);\n    wgmma_wait<0>();\n"}},
         {source_overwritten}},
        {"no proxy fence after the stores",
         {{"    fence_shared_before_async_proxy();\n", ""}},
         {missing_proxy_fence}},
        {"the proxy fence after the barrier",
         {{"    fence_shared_before_async_proxy();\n    __syncthreads();  // written\n",
           "    __syncthreads();  // written\n    fence_shared_before_async_proxy();\n"}},
         {missing_proxy_fence}},
        {"no barrier after the stores",
         {{"    __syncthreads();  // written\n", ""}},
         {data_race, uninitialised_read}},
        {"twice the stride",
         {{"b(shared, k_major_layout(MatrixSwizzle::bytes_128))",
           "b(shared, MatrixLayout{16, 2048, MatrixSwizzle::bytes_128})"}},
         {}},
        {"half of the stride",
         {{"b(shared, k_major_layout(MatrixSwizzle::bytes_128))",
           "b(shared, MatrixLayout{16, 512, MatrixSwizzle::bytes_128})"}},
         {invalid_descriptor}},
        {"no swizzle",
         {{"b(shared, k_major_layout(MatrixSwizzle::bytes_128))",
           "b(shared, MatrixLayout{128, 1024, MatrixSwizzle::none})"}},
         {}},
        {"another swizzle",
         {{"b(shared, k_major_layout(MatrixSwizzle::bytes_128))",
           "b(shared, MatrixLayout{16, 1024, MatrixSwizzle::bytes_64})"}},
         {invalid_descriptor}},
        {"steps twice as far",
         {{"b.advanced(step * k_major_step)", "b.advanced(step * 2 * k_major_step)"}},
         {invalid_descriptor}},
        {"the same step each time", {{"b.advanced(step * k_major_step)", "b"}}, {}},
        {"beyond the block's shared memory",
         {{"a(shared + 4096,", "a(shared + 8192,"}},
         {invalid_descriptor}},
        {"the sums of before forgotten",
         {{"step * k_major_step), true)", "step * k_major_step), false)"}},
         {}},
        {"by three of four warps",
         {{"    wgmma_commit();\n", "    }\n    wgmma_commit();\n"},
          {"    wgmma_fence();\n", "    wgmma_fence();\n    if (thread < 96) {\n"}},
         {divergent_collective}},
        {"of descriptors that differ",
         {{"const MatrixDescriptor b(shared,",
           "const MatrixDescriptor b(thread < 64 ? shared : shared + 4096,"}},
         {divergent_collective}},
    };
    require_found(kernel, faults);
}

TEST_CASE("a wrong product of an operand in registers is found") {
    const SmallKernel kernel{.name = "wgmma_registers.cu",
                             .text = R"(
    for (int chunk = thread; chunk < 32 * 8; chunk += 128) {
        const int row = chunk / 8;
        store_shared(shared + row * 128 + (chunk % 8 ^ row % 8) * 16,
                     reinterpret_cast<const uint4*>(arguments.source)[chunk]);
    }
    OperandRegister a[4][4];
    for (int step = 0; step < 4; ++step) {
        for (int i = 0; i < 4; ++i) {
            const int row = thread / 32 * 16 + lane / 4 + i % 2 * 8;
            const int k = step * 16 + i / 2 * 8 + lane % 4 * 2;
            a[step][i] = arguments.source[((32 + row) * 64 + k) / 2];
        }
    }
    fence_shared_before_async_proxy();
    __syncthreads();
    const MatrixDescriptor b(shared, k_major_layout(MatrixSwizzle::bytes_128));
    AccumulatorRegister d[16];
    wgmma_fence();
    for (int step = 0; step < 4; ++step) {
        wgmma_m64k16<bf16, 32, Major::k>(d, a[step], b.advanced(step * k_major_step), step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(a);
    wgmma_settle(d);
    a[0][0] = 0u;  // of no use, and no harm
    for (int i = 0; i < 16; ++i) {
        const int row = thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        arguments.out[row * 32 + column] = __float_as_uint(d[i]);
    }
)",
                             .threads = 128,
                             .shared_bytes = 32 * 128,
                             .source = operands(),
                             .expected = product()};
    const std::vector<SmallFault> faults = {
        {"A changed before the wait",
         {{"    wgmma_wait<0>();\n", "    a[0][0] = 0u;\n    wgmma_wait<0>();\n"}},
         {register_in_flight}},
        {"no wgmma fence", {{"    wgmma_fence();\n", ""}}, {missing_wgmma_fence}},
        {"A changed after the fence",
         {{"    wgmma_fence();\n", "    wgmma_fence();\n    a[2][1] = 0u;\n"}},
         {missing_wgmma_fence}},
        {"halves of A exchanged",
         {{"lane / 4 + i % 2 * 8;\n            const int k = step * 16 + i / 2 * 8",
           "lane / 4 + i / 2 * 8;\n            const int k = step * 16 + i % 2 * 8"}},
         {}},
    };
    require_found(kernel, faults);
}

TEST_CASE("operands that another warpgroup writes are handed over by a fence and a barrier") {
    const SmallKernel kernel{.name = "wgmma_of_others.cu",
                             .text = R"(
    const uint32_t written = shared + 96 * 128;
    if (thread == 0) {
        mbarrier_initialise(written, 128);
    }
    __syncthreads();
    if (thread >= 128) {
        for (int chunk = thread - 128; chunk < 96 * 8; chunk += 128) {
            const int row = chunk / 8;
            store_shared(shared + row * 128 + (chunk % 8 ^ row % 8) * 16,
                         reinterpret_cast<const uint4*>(arguments.source)[chunk]);
        }
        fence_shared_before_async_proxy();
        mbarrier_arrive(written);
        return;
    }
    mbarrier_wait(written, 0);
    const MatrixDescriptor b(shared, k_major_layout(MatrixSwizzle::bytes_128));
    const MatrixDescriptor a(shared + 4096, k_major_layout(MatrixSwizzle::bytes_128));
    AccumulatorRegister d[16];
    wgmma_fence();
    for (int step = 0; step < 4; ++step) {
        wgmma_m64k16<bf16, 32, Major::k, Major::k>(d, a.advanced(step * k_major_step),
                                                   b.advanced(step * k_major_step), step > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_settle(d);
    for (int i = 0; i < 16; ++i) {
        const int row = thread / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        arguments.out[row * 32 + column] = __float_as_uint(d[i]);
    }
)",
                             .threads = 256,
                             .shared_bytes = 96 * 128 + 8,
                             .source = operands(),
                             .expected = product()};
    const std::string fence = "        fence_shared_before_async_proxy();\n";
    const std::string arrive = "        mbarrier_arrive(written);\n";
    const std::string wait = "    mbarrier_wait(written, 0);\n";
    const std::vector<SmallFault> faults = {
        {"no fence", {{fence, ""}}, {missing_proxy_fence}},
        {"the fence by those who read",
         {{fence, ""}, {wait, wait + "    fence_shared_before_async_proxy();\n"}},
         {missing_proxy_fence}},
        {"the fence after the arrival",
         {{fence + arrive, arrive + fence}},
         {missing_proxy_fence, data_race}},
        {"no barrier", {{wait, ""}}, {data_race, uninitialised_read}},
        {"neither", {{fence, ""}, {wait, ""}}, {data_race, uninitialised_read}},
        {"arrival before the stores",
         {{arrive, ""},
          {"        for (int chunk = thread - 128;",
           "        mbarrier_arrive(written);\n        for (int chunk = thread - 128;"}},
         {data_race, uninitialised_read, missing_proxy_fence}},
        {"an arrival of one writer too few expected",
         {{"mbarrier_initialise(written, 128)", "mbarrier_initialise(written, 127)"}},
         {data_race, uninitialised_read}},
    };
    require_found(kernel, faults);
}

TEST_CASE("wgmma is reported where the emulated hardware has none") {
    EmulationOptions options = one_thread();
    options.target = "sm_120a";
    EmulatedSession session(options);
    const SmallKernel kernel{.name = "wgmma_sm_120.cu",
                             .text = R"(
    const MatrixDescriptor operand(shared, k_major_layout(MatrixSwizzle::bytes_128));
    AccumulatorRegister d[16];
    wgmma_fence();
    wgmma_m64k16<bf16, 32, Major::k, Major::k>(d, operand, operand, false);
)",
                             .threads = 128,
                             .shared_bytes = 8192,
                             .source = Words(1),
                             .expected = {}};
    const Outcome outcome = run_small_kernel(session, kernel, 1);
    CHECK_MESSAGE(outcome.fault == unavailable_instruction, to_string(outcome));
}

}  // namespace

}  // namespace backlight::test
