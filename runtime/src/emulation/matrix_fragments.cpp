#include "emulation/matrix_fragments.hpp"

#include <bit>
#include <cstddef>
#include <cstring>

#include "half_types.hpp"

namespace backlight::emulation {

namespace {

constexpr int matrix_rows = 8;
constexpr int mma_m = 16;
constexpr int mma_n = 8;
constexpr int mma_k = 16;

/// The row of a group of eight that a lane's fragment lies in, and the first of its two columns.
constexpr int fragment_row(int lane) {
    return lane / 4;
}
constexpr int fragment_column(int lane) {
    return 2 * (lane % 4);
}

constexpr std::uint32_t pack(std::uint16_t low, std::uint16_t high) {
    return low | static_cast<std::uint32_t>(high) << 16;
}

constexpr std::uint16_t low_half(std::uint32_t packed) {
    return static_cast<std::uint16_t>(packed);
}
constexpr std::uint16_t high_half(std::uint32_t packed) {
    return static_cast<std::uint16_t>(packed >> 16);
}

static_assert(std::endian::native == std::endian::little, "the low half comes first in memory");

/// Both halves of all registers as floats, low half first. One loop over contiguous elements, so
/// that it is vectorised; the type is decided once, not for every element.
template <std::size_t threads, std::size_t count>
std::array<std::array<float, 2 * count>, threads> widen_all(
    DataType type, const std::array<std::uint32_t, count>* registers) {
    std::array<std::uint16_t, 2 * threads * count> halves{};
    std::memcpy(halves.data(), registers, sizeof(halves));
    std::array<float, halves.size()> wide{};
    if (type == DataType::bf16) {
        for (std::size_t i = 0; i < halves.size(); ++i) {
            wide[i] = from_bits(DataType::bf16, halves[i]);
        }
    } else {
        for (std::size_t i = 0; i < halves.size(); ++i) {
            wide[i] = from_bits(DataType::fp16, halves[i]);
        }
    }
    return std::bit_cast<std::array<std::array<float, 2 * count>, threads>>(wide);
}

/// Places a lane's eight elements of A, four packed registers, in the sixteen rows of its warp:
/// rows 8 apart in registers 0 and 1, columns 8 apart in registers 0 and 2.
void place_a(int lane, const std::array<float, 8>& values, std::array<float, wgmma_k>* rows) {
    for (int element = 0; element < 8; ++element) {
        const int row = fragment_row(lane) + (element / 2 % 2) * 8;
        const int k = fragment_column(lane) + (element / 4) * 8 + element % 2;
        rows[row][static_cast<std::size_t>(k)] = values[static_cast<std::size_t>(element)];
    }
}

/// sums[n] = Σ a[k] · b[k][n] for `columns` columns, few enough to stay in vector registers.
template <int columns>
void multiply_row(const std::array<float, 16>& a, const float* b, std::size_t row_stride,
                  float (&sums)[columns]) {
    for (float& sum : sums) {
        sum = 0;
    }
    for (std::size_t k = 0; k < 16; ++k) {
        const float* row = b + k * row_stride;
        for (int n = 0; n < columns; ++n) {
            sums[n] += a[k] * row[n];
        }
    }
}

}  // namespace

WarpRegisters<std::uint32_t, 4> load_matrices(std::span<const MatrixRow> rows, bool transposed) {
    WarpRegisters<std::uint32_t, 4> registers{};
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
        const auto row = static_cast<std::size_t>(fragment_row(static_cast<int>(lane)));
        const auto column = static_cast<std::size_t>(fragment_column(static_cast<int>(lane)));
        for (std::size_t matrix = 0; matrix < rows.size() / matrix_rows; ++matrix) {
            const std::span<const MatrixRow> m = rows.subspan(matrix * matrix_rows, matrix_rows);
            registers[lane][matrix] = transposed ? pack(m[column][row], m[column + 1][row])
                                                 : pack(m[row][column], m[row][column + 1]);
        }
    }
    return registers;
}

void store_matrices(const WarpRegisters<std::uint32_t, 4>& registers, bool transposed,
                    std::span<MatrixRow> rows) {
    for (std::size_t lane = 0; lane < warp_lanes; ++lane) {
        const auto row = static_cast<std::size_t>(fragment_row(static_cast<int>(lane)));
        const auto column = static_cast<std::size_t>(fragment_column(static_cast<int>(lane)));
        for (std::size_t matrix = 0; matrix < rows.size() / matrix_rows; ++matrix) {
            const std::span<MatrixRow> m = rows.subspan(matrix * matrix_rows, matrix_rows);
            const std::uint32_t packed = registers[lane][matrix];
            (transposed ? m[column][row] : m[row][column]) = low_half(packed);
            (transposed ? m[column + 1][row] : m[row][column + 1]) = high_half(packed);
        }
    }
}

void multiply_m16n8k16(DataType type, WarpRegisters<float, 4>& c,
                       const WarpRegisters<std::uint32_t, 4>& a,
                       const WarpRegisters<std::uint32_t, 2>& b) {
    const auto a_values = widen_all<warp_lanes>(type, a.data());
    const auto b_values = widen_all<warp_lanes>(type, b.data());
    std::array<std::array<float, mma_k>, mma_m> a_rows{};
    std::array<std::array<float, mma_n>, mma_k> b_rows{};
    for (int lane = 0; lane < warp_lanes; ++lane) {
        place_a(lane, a_values[static_cast<std::size_t>(lane)], a_rows.data());
        // Register 0 holds k and k + 1 of a column, register 1 the same 8 below.
        for (int element = 0; element < 4; ++element) {
            const int k = fragment_column(lane) + (element / 2) * 8 + element % 2;
            b_rows[static_cast<std::size_t>(k)][static_cast<std::size_t>(fragment_row(lane))] =
                b_values[static_cast<std::size_t>(lane)][static_cast<std::size_t>(element)];
        }
    }
    for (std::size_t row = 0; row < mma_m; ++row) {
        float sums[mma_n];
        multiply_row(a_rows[row], b_rows[0].data(), mma_n, sums);
        for (std::size_t n = 0; n < mma_n; ++n) {
            c[row % 8 * 4 + n / 2][row / 8 * 2 + n % 2] += sums[n];
        }
    }
}

WgmmaMatrixA widen_registers(
    DataType type, std::span<const std::array<std::uint32_t, 4>, warpgroup_threads> registers) {
    const auto values = widen_all<warpgroup_threads>(type, registers.data());
    WgmmaMatrixA a{};
    for (std::size_t thread = 0; thread < warpgroup_threads; ++thread) {
        place_a(static_cast<int>(thread % warp_lanes), values[thread],
                a.data() + thread / warp_lanes * mma_m);
    }
    return a;
}

void multiply_m64nNk16(int n, std::span<float* const, warpgroup_threads> d, const WgmmaMatrixA& a,
                       const WgmmaMatrixB& b, const WgmmaModifiers& modifiers) {
    constexpr int columns = 8;
    const float sign = modifiers.negate_a != modifiers.negate_b ? -1.0F : 1.0F;
    for (std::size_t row = 0; row < wgmma_m; ++row) {
        // Four neighbouring threads hold a row: two columns of every eight each, and of the same
        // eight two more in the row 8 below.
        float* const* threads = d.data() + row / 16 * warp_lanes + row % 8 * 4;
        const std::size_t half = row % 16 / 8 * 2;
        for (int start = 0; start < n; start += columns) {
            float sums[columns];
            multiply_row(a[row], b[0].data() + start, wgmma_n_limit, sums);
            for (std::size_t i = 0; i < columns; ++i) {
                float& accumulator =
                    threads[i / 2][static_cast<std::size_t>(start / 8) * 4 + half + i % 2];
                accumulator = sign * sums[i] + (modifiers.accumulate ? accumulator : 0.0F);
            }
        }
    }
}

}  // namespace backlight::emulation
