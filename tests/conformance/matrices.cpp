#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "conformance.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

constexpr std::size_t lanes = 32;
constexpr std::size_t row_elements = 8;

std::uint32_t pair_of(std::uint16_t low, std::uint16_t high) {
    return low | static_cast<std::uint32_t>(high) << 16;
}

}  // namespace

void check_matrix_round_trips(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, matrix_round_trip());
    std::vector<std::uint16_t> rows(lanes * row_elements);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        rows[i] = static_cast<std::uint16_t>(i + 1);
    }
    const auto element = [&](std::size_t matrix, std::size_t row, std::size_t column) {
        return rows[(matrix * 8 + row) * row_elements + column];
    };
    const DeviceArray source(runtime, rows);
    for (const std::size_t matrices : {1, 2, 4}) {
        for (const bool load_transposed : {false, true}) {
            for (const bool store_transposed : {false, true}) {
                const DeviceArray registers(runtime, std::vector<std::uint32_t>(lanes * 4));
                const DeviceArray stored(runtime, std::vector<std::uint16_t>(rows.size()));
                kernel.run(1, lanes,
                           kernel::MatrixRoundTripArguments{.rows = source.data(),
                                                            .registers = registers.data<unsigned>(),
                                                            .stored = stored.data(),
                                                            .matrices = static_cast<int>(matrices),
                                                            .load_transposed = load_transposed,
                                                            .store_transposed = store_transposed});

                std::vector<std::uint32_t> expected_registers(lanes * 4, 0);
                std::vector<std::uint16_t> expected_rows(rows.size(), 0);
                for (std::size_t matrix = 0; matrix < matrices; ++matrix) {
                    for (std::size_t lane = 0; lane < lanes; ++lane) {
                        const std::size_t row = lane / 4;
                        const std::size_t column = lane % 4 * 2;
                        expected_registers[lane * 4 + matrix] =
                            load_transposed ? pair_of(element(matrix, column, row),
                                                      element(matrix, column + 1, row))
                                            : pair_of(element(matrix, row, column),
                                                      element(matrix, row, column + 1));
                    }
                    for (std::size_t row = 0; row < 8; ++row) {
                        for (std::size_t column = 0; column < 8; ++column) {
                            expected_rows[(matrix * 8 + row) * row_elements + column] =
                                load_transposed == store_transposed ? element(matrix, row, column)
                                                                    : element(matrix, column, row);
                        }
                    }
                }
                const std::string what = fmt::format("{} matrices, loaded {}, stored {}", matrices,
                                                     load_transposed ? "transposed" : "plain",
                                                     store_transposed ? "transposed" : "plain");
                check_equal(registers.read<std::uint32_t>(), expected_registers,
                            what + ": registers");
                check_equal(stored.read<std::uint16_t>(), expected_rows, what + ": rows");
            }
        }
    }
}

void check_mma(Runtime& runtime) {
    constexpr std::size_t m = 16;
    constexpr std::size_t n = 8;
    constexpr std::size_t k = 16;
    const std::vector<float> a = small_integers(m * k, 1);
    const std::vector<float> b = small_integers(n * k, 2);
    const std::vector<float> c = small_integers(m * n, 3);
    std::vector<float> expected = c;
    for (std::size_t row = 0; row < m; ++row) {
        for (std::size_t column = 0; column < n; ++column) {
            for (std::size_t i = 0; i < k; ++i) {
                expected[row * n + column] += a[row * k + i] * b[column * k + i];
            }
        }
    }
    for (const DataType type : {DataType::bf16, DataType::fp16}) {
        const ConformanceKernel kernel(runtime, mma_product(type));
        const DeviceArray a_device(runtime, to_elements(type, a));
        const DeviceArray b_device(runtime, to_elements(type, b));
        const DeviceArray c_device(runtime, c);
        kernel.run(1, lanes,
                   kernel::MmaProductArguments{
                       .a = a_device.data(), .b = b_device.data(), .c = c_device.data<float>()});
        check_equal(c_device.read<float>(), expected, type == DataType::bf16 ? "bf16" : "fp16");
    }
}

}  // namespace backlight::conformance
