#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "backlight/problem.hpp"

// Warp and warpgroup matrix instructions as functions of all lanes' registers, fragments laid out
// as the PTX ISA defines them (sections on ldmatrix, stmatrix, mma.m16n8k16, wgmma.m64nNk16).

namespace backlight::emulation {

constexpr int warp_lanes = 32;
constexpr int warpgroup_threads = 128;

/// A 16-byte row of an 8×8 matrix of 16-bit elements.
using MatrixRow = std::array<std::uint16_t, 8>;

/// Registers of the 32 lanes, lane first.
template <typename Register, int count>
using WarpRegisters = std::array<std::array<Register, count>, warp_lanes>;

/// ldmatrix.x1, .x2 or .x4 (b16): `rows` are the 8, 16 or 32 rows that lanes 0, 1, … name. Register
/// m of a lane holds its two elements of matrix m; registers beyond the last matrix are zero.
WarpRegisters<std::uint32_t, 4> load_matrices(std::span<const MatrixRow> rows, bool transposed);

/// stmatrix.x1, .x2 or .x4 (b16), the inverse: fills the 8, 16 or 32 rows that lanes 0, 1, … name.
void store_matrices(const WarpRegisters<std::uint32_t, 4>& registers, bool transposed,
                    std::span<MatrixRow> rows);

/// mma.m16n8k16 with fp32 accumulation: C (16×8) += A (16×16) · B (16×8). The sixteen products of
/// an element are exact and summed in fp32 in the order of k, then added to C.
void multiply_m16n8k16(DataType type, WarpRegisters<float, 4>& c,
                       const WarpRegisters<std::uint32_t, 4>& a,
                       const WarpRegisters<std::uint32_t, 2>& b);

constexpr int wgmma_m = 64;
constexpr int wgmma_k = 16;
constexpr int wgmma_n_limit = 256;

/// A of wgmma.m64nNk16: [m][k].
using WgmmaMatrixA = std::array<std::array<float, wgmma_k>, wgmma_m>;

/// B of wgmma.m64nNk16: [k][n]; columns from n on are not used.
using WgmmaMatrixB = std::array<std::array<float, wgmma_n_limit>, wgmma_k>;

/// A given in registers: four a thread of the warpgroup, two elements in each.
WgmmaMatrixA widen_registers(
    DataType type, std::span<const std::array<std::uint32_t, 4>, warpgroup_threads> registers);

/// Modifiers of wgmma.mma_async.
struct WgmmaModifiers {
    bool accumulate = true;  ///< scale-d: else D starts from zero and its old value is not read
    bool negate_a = false;   ///< imm-scale-a is -1
    bool negate_b = false;   ///< imm-scale-b is -1
};

/// wgmma.mma_async.m64nNk16 with fp32 accumulation: D (64×n) = A · B (+ D), n a multiple of 8 from
/// 8 to 256. d[t] points at the n/2 accumulators of thread t of the warpgroup.
void multiply_m64nNk16(int n, std::span<float* const, warpgroup_threads> d, const WgmmaMatrixA& a,
                       const WgmmaMatrixB& b, const WgmmaModifiers& modifiers);

}  // namespace backlight::emulation
