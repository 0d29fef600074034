#include "emulation/matrix_fragments.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "half_types.hpp"

using backlight::DataType;
using backlight::to_bits;
using namespace backlight::emulation;

namespace {

constexpr DataType types[] = {DataType::bf16, DataType::fp16};

/// Sets element `index` (0 the low half) of a packed register.
void set_half(std::uint32_t& packed, int index, std::uint16_t bits) {
    packed = (packed & ~(0xffffU << (16 * index))) | (std::uint32_t{bits} << (16 * index));
}

std::uint16_t half(std::uint32_t packed, int index) {
    return static_cast<std::uint16_t>(packed >> (16 * index));
}

/// Row r of matrix m holds 100 m + 8 r + column.
std::vector<MatrixRow> numbered_rows(std::size_t count) {
    std::vector<MatrixRow> rows(count);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t column = 0; column < 8; ++column) {
            rows[i][column] = static_cast<std::uint16_t>(100 * (i / 8) + 8 * (i % 8) + column);
        }
    }
    return rows;
}

using Matrix = std::vector<std::vector<double>>;

/// Small integers, so that every sum of products is exact in fp32 whatever its order.
Matrix random_matrix(int rows, int columns, std::mt19937& random) {
    std::uniform_int_distribution<int> value(-15, 15);
    Matrix matrix(static_cast<std::size_t>(rows),
                  std::vector<double>(static_cast<std::size_t>(columns)));
    for (auto& row : matrix) {
        for (double& element : row) {
            element = value(random);
        }
    }
    return matrix;
}

Matrix product(const Matrix& a, const Matrix& b) {
    Matrix c(a.size(), std::vector<double>(b[0].size()));
    for (std::size_t m = 0; m < a.size(); ++m) {
        for (std::size_t n = 0; n < b[0].size(); ++n) {
            for (std::size_t k = 0; k < b.size(); ++k) {
                c[m][n] += a[m][k] * b[k][n];
            }
        }
    }
    return c;
}

// The PTX ISA's formulas for elements a0 … a7, b0 … b3 and c0 … c3 of mma.m16n8k16.
int a_row(int lane, int i) {
    return (i == 0 || i == 1 || i == 4 || i == 5) ? lane >> 2 : (lane >> 2) + 8;
}
int a_column(int lane, int i) {
    return (lane % 4) * 2 + (i & 1) + (i >= 4 ? 8 : 0);
}
int b_row(int lane, int i) {
    return (lane % 4) * 2 + (i & 1) + (i >= 2 ? 8 : 0);
}
int b_column(int lane) {
    return lane >> 2;
}
int c_row(int lane, int i) {
    return i < 2 ? lane >> 2 : (lane >> 2) + 8;
}
int c_column(int lane, int i) {
    return (lane % 4) * 2 + (i & 1);
}

double& at(Matrix& matrix, int row, int column) {
    return matrix[static_cast<std::size_t>(row)][static_cast<std::size_t>(column)];
}

struct Operands {
    WarpRegisters<std::uint32_t, 4> a{};
    WarpRegisters<std::uint32_t, 2> b{};
};

Operands pack_operands(DataType type, Matrix a, Matrix b) {
    Operands operands;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        const auto l = static_cast<std::size_t>(lane);
        for (int i = 0; i < 8; ++i) {
            set_half(operands.a[l][static_cast<std::size_t>(i / 2)], i % 2,
                     to_bits(type, at(a, a_row(lane, i), a_column(lane, i))));
        }
        for (int i = 0; i < 4; ++i) {
            set_half(operands.b[l][static_cast<std::size_t>(i / 2)], i % 2,
                     to_bits(type, at(b, b_row(lane, i), b_column(lane))));
        }
    }
    return operands;
}

/// C of zeros plus A · B, where only A's first row and B's first column are not zero.
float dot(DataType type, const std::vector<double>& a, const std::vector<double>& b, float c0) {
    Matrix a_matrix(16, std::vector<double>(16));
    Matrix b_matrix(16, std::vector<double>(8));
    for (std::size_t k = 0; k < a.size(); ++k) {
        a_matrix[0][k] = a[k];
        b_matrix[k][0] = b[k];
    }
    const Operands operands = pack_operands(type, a_matrix, b_matrix);
    WarpRegisters<float, 4> c{};
    c[0][0] = c0;
    multiply_m16n8k16(type, c, operands.a, operands.b);
    return c[0][0];
}

/// D of wgmma in 128 threads' registers.
struct Accumulators {
    explicit Accumulators(int n)
        : columns(n), values(128, std::vector<float>(static_cast<std::size_t>(n / 2))) {
        for (std::size_t thread = 0; thread < 128; ++thread) {
            pointers[thread] = values[thread].data();
        }
    }

    /// By the PTX ISA: thread t's element i lies in row 16 (t / 32) + (t % 32) / 4, 8 lower for
    /// every second pair, and in column 8 (i / 4) + 2 (t % 4) + i % 2.
    float& element(int row, int column) {
        for (int t = 0; t < 128; ++t) {
            for (int i = 0; i < columns / 2; ++i) {
                if (16 * (t / 32) + (t % 32) / 4 + 8 * (i / 2 % 2) == row &&
                    8 * (i / 4) + 2 * (t % 4) + i % 2 == column) {
                    return values[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
                }
            }
        }
        FAIL("no thread holds the element");
        return values[0][0];
    }

    int columns;
    std::vector<std::vector<float>> values;
    std::array<float*, 128> pointers{};
};

WgmmaMatrixA wgmma_a(const Matrix& matrix) {
    WgmmaMatrixA a;
    for (std::size_t m = 0; m < 64; ++m) {
        for (std::size_t k = 0; k < 16; ++k) {
            a[m][k] = static_cast<float>(matrix[m][k]);
        }
    }
    return a;
}

WgmmaMatrixB wgmma_b(const Matrix& matrix) {
    WgmmaMatrixB b;
    for (auto& row : b) {
        // What lies beyond column n must not be used.
        row.fill(std::numeric_limits<float>::quiet_NaN());
    }
    for (std::size_t k = 0; k < 16; ++k) {
        for (std::size_t n = 0; n < matrix[k].size(); ++n) {
            b[k][n] = static_cast<float>(matrix[k][n]);
        }
    }
    return b;
}

}  // namespace

TEST_CASE("ldmatrix gives each lane two neighbours of a row or of a column when transposed") {
    for (const std::size_t count : {std::size_t{8}, std::size_t{16}, std::size_t{32}}) {
        const std::vector<MatrixRow> rows = numbered_rows(count);
        const auto plain = load_matrices(rows, false);
        const auto transposed = load_matrices(rows, true);
        for (std::size_t lane = 0; lane < 32; ++lane) {
            for (std::size_t m = 0; m < 4; ++m) {
                if (m >= count / 8) {
                    CHECK(plain[lane][m] == 0);
                    CHECK(transposed[lane][m] == 0);
                    continue;
                }
                for (int i = 0; i < 2; ++i) {
                    const std::size_t line = lane / 4;
                    const std::size_t place = lane % 4 * 2 + static_cast<std::size_t>(i);
                    CHECK(half(plain[lane][m], i) == 100 * m + 8 * line + place);
                    CHECK(half(transposed[lane][m], i) == 100 * m + 8 * place + line);
                }
            }
        }
    }
}

TEST_CASE("stmatrix writes what ldmatrix reads and transposes when asked to") {
    for (const std::size_t count : {std::size_t{8}, std::size_t{16}, std::size_t{32}}) {
        const std::vector<MatrixRow> rows = numbered_rows(count);
        for (const bool transposed : {false, true}) {
            std::vector<MatrixRow> stored(count);
            store_matrices(load_matrices(rows, transposed), transposed, stored);
            CHECK(stored == rows);

            store_matrices(load_matrices(rows, !transposed), transposed, stored);
            for (std::size_t i = 0; i < count; ++i) {
                for (std::size_t column = 0; column < 8; ++column) {
                    CHECK(stored[i][column] == rows[i / 8 * 8 + column][i % 8]);
                }
            }
        }
    }
}

TEST_CASE("mma m16n8k16 is the matrix product of fragments laid out as the PTX ISA says") {
    std::mt19937 random(1);
    for (const DataType type : types) {
        for (int repeat = 0; repeat < 5; ++repeat) {
            const Matrix a = random_matrix(16, 16, random);
            const Matrix b = random_matrix(16, 8, random);
            Matrix expected = product(a, b);
            const Operands operands = pack_operands(type, a, b);
            WarpRegisters<float, 4> c;
            for (std::size_t lane = 0; lane < 32; ++lane) {
                for (std::size_t i = 0; i < 4; ++i) {
                    c[lane][i] = static_cast<float>(lane * 4 + i);
                }
            }
            multiply_m16n8k16(type, c, operands.a, operands.b);
            for (int lane = 0; lane < 32; ++lane) {
                for (int i = 0; i < 4; ++i) {
                    CHECK(c[static_cast<std::size_t>(lane)][static_cast<std::size_t>(i)] ==
                          lane * 4 + i + at(expected, c_row(lane, i), c_column(lane, i)));
                }
            }
        }
    }
}

TEST_CASE("mma widens subnormals and large numbers and infinities of both types") {
    // The smallest subnormal of fp16 and of bf16, times a number that brings it into range.
    CHECK(dot(DataType::fp16, {0x1p-24}, {0x1p10}, 0) == 0x1p-14F);
    CHECK(dot(DataType::fp16, {-0x3ffp-24}, {1}, 0) == -0x3ffp-24F);
    CHECK(dot(DataType::bf16, {0x1p-133}, {0x1p100}, 0) == 0x1p-33F);
    CHECK(dot(DataType::fp16, {65504}, {65504}, 0) == 65504.0F * 65504.0F);
    const double infinity = std::numeric_limits<double>::infinity();
    for (const DataType type : types) {
        CHECK(dot(type, {infinity}, {-2}, 1) == -std::numeric_limits<float>::infinity());
        CHECK(std::isnan(dot(type, {infinity, infinity}, {1, -1}, 0)));
        CHECK(std::isnan(dot(type, {std::nan("")}, {1}, 0)));
    }
}

TEST_CASE("mma sums its products before it adds them to the accumulator") {
    // One by one, every 1 would be lost beside 2^25; their sum is not.
    CHECK(dot(DataType::bf16, std::vector<double>(16, 1), std::vector<double>(16, 1), 0x1p25F) ==
          0x1p25F + 16);
}

TEST_CASE("wgmma is the matrix product for every kind of n with accumulators as the PTX ISA says") {
    std::mt19937 random(2);
    for (const int n : {8, 16, 24, 64, 96, 128, 200, 256}) {
        CAPTURE(n);
        const Matrix a = random_matrix(64, 16, random);
        const Matrix b = random_matrix(16, n, random);
        Matrix expected = product(a, b);
        Accumulators d(n);
        for (std::vector<float>& thread : d.values) {
            thread.assign(thread.size(), 1000);
        }
        multiply_m64nNk16(n, d.pointers, wgmma_a(a), wgmma_b(b), {});
        // Corners, centre and a few more: looking up a place in the registers is slow.
        for (const int row : {0, 7, 8, 21, 40, 63}) {
            for (const int column : {0, 1, 6, 7, n / 2, n - 1}) {
                CAPTURE(row);
                CAPTURE(column);
                CHECK(d.element(row, column) == 1000 + at(expected, row, column));
            }
        }
    }
}

TEST_CASE("wgmma without accumulation does not read its accumulators and negates what it is told") {
    std::mt19937 random(3);
    const Matrix a = random_matrix(64, 16, random);
    const Matrix b = random_matrix(16, 8, random);
    Matrix expected = product(a, b);
    for (const bool negate_a : {false, true}) {
        for (const bool negate_b : {false, true}) {
            Accumulators d(8);
            for (std::vector<float>& thread : d.values) {
                thread.assign(thread.size(), std::numeric_limits<float>::quiet_NaN());
            }
            multiply_m64nNk16(8, d.pointers, wgmma_a(a), wgmma_b(b),
                              {.accumulate = false, .negate_a = negate_a, .negate_b = negate_b});
            const double sign = negate_a == negate_b ? 1 : -1;
            for (int row = 0; row < 64; ++row) {
                for (int column = 0; column < 8; ++column) {
                    CHECK(d.element(row, column) == sign * at(expected, row, column));
                }
            }
        }
    }
}

TEST_CASE("wgmma takes A from registers in the layout of four stacked mma fragments") {
    std::mt19937 random(4);
    for (const DataType type : types) {
        Matrix matrix = random_matrix(64, 16, random);
        std::array<std::array<std::uint32_t, 4>, 128> registers{};
        for (int thread = 0; thread < 128; ++thread) {
            for (int i = 0; i < 8; ++i) {
                set_half(
                    registers[static_cast<std::size_t>(thread)][static_cast<std::size_t>(i / 2)],
                    i % 2,
                    to_bits(type, at(matrix, 16 * (thread / 32) + a_row(thread % 32, i),
                                     a_column(thread % 32, i))));
            }
        }
        CHECK(widen_registers(type, registers) == wgmma_a(matrix));
    }
}
