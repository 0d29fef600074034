// How the warps of the mma kernel for wide heads divide the tiles, their registers, and what lies
// where in shared memory.
#pragma once

#include "attention_backward_mma_resident/constants.cuh"
#include "primitives/mma.cuh"
#include "primitives/swizzle.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"

namespace backlight::kernel {

// --- Warps and registers ------------------------------------------------------------------------

constexpr int pairs = block_kv / mma_m;  // 16 keys each
constexpr int warps = 2 * pairs;
constexpr int threads = warps * warp_size;

static_assert(pairs == 4 && block_q == 32, "each scheduler has a pair, whose sums fill it");
static_assert(head_dim % 64 == 0 && head_dim <= 256, "whole panels of 64 columns");
static_assert(tile_columns_v % 64 == 0 && tile_columns_v <= 256, "whole panels of 64 columns");
static_assert(!specialisation::causal && !converts_d_q, "forms that only narrow heads have");

// All warps divide dQ anew: in each panel of K a warp takes 16 queries and 16 columns, so that one
// address serves all panels, whatever their number.
constexpr int d_q_panels = head_dim / 64;
constexpr int d_q_row_parts = block_q / mma_m;
constexpr int d_q_column_parts = warps / d_q_row_parts;
static_assert(d_q_column_parts * 2 * mma_n == 64, "the warps share each panel's columns");
// In two halves where dK and V fill the registers.
constexpr int d_q_panels_at_once = head_dim == 256 && tile_columns_v == 256 ? 2 : d_q_panels;

//                            256 columns
//     dK or dV               128
//     V as operands          64, of the warps that have dK
//     dPᵀ or Sᵀ              16
//     P, dS as operands      8
//     dQ                     32, or 16, when those two are at rest
//
// 65,536 registers are 255 a thread for a block of 256.

// --- Shared memory ------------------------------------------------------------------------------

using KTile = SwizzledTile<block_kv, head_dim>;
using VTile = SwizzledTile<block_kv, tile_columns_v>;
using QTile = SwizzledTile<block_q, head_dim>;
using DOTile = SwizzledTile<block_q, tile_columns_v>;
/// dSᵀ: a row a key.
using ScoreTile = SwizzledTile<block_kv, block_q>;

// The next tile's Q comes while dK of this one is computed, and dO while dV is, where there is room
// for that; else when it is done.
constexpr int q_stages = 2;
constexpr int d_o_stages = specialisation::d_o_stages;
static_assert(d_o_stages == 1 || d_o_stages == 2, "the places of dO");
constexpr int d_s_buffers = 2;
/// P in fp32, as the threads of a pair hold it.
constexpr int p_bytes = block_kv * block_q * 4;
constexpr int statistics_bytes = block_q * 4;

constexpr int k_offset = 0;
constexpr int q_first_offset = k_offset + KTile::bytes;
constexpr int d_o_first_offset = q_first_offset + QTile::bytes;
constexpr int q_second_offset = d_o_first_offset + DOTile::bytes;
constexpr int d_o_second_offset = q_second_offset + QTile::bytes;
constexpr int d_s_offset = d_o_second_offset + (d_o_stages - 1) * DOTile::bytes;
constexpr int p_offset = d_s_offset + d_s_buffers * ScoreTile::bytes;

// V goes to registers before the first tile, by way of what is first written after that.
constexpr int v_offset = q_second_offset;
constexpr int tiles_end =
    p_offset + p_bytes > v_offset + VTile::bytes ? p_offset + p_bytes : v_offset + VTile::bytes;
constexpr int lse_offset = tiles_end;
constexpr int delta_offset = lse_offset + statistics_bytes;
constexpr int barrier_offset = delta_offset + statistics_bytes;
constexpr int barriers = 1 + q_stages + d_o_stages + 2;
// What the block works on, where sequences are packed.
constexpr int packed_tile_offset = (barrier_offset + 8 * barriers + 15) / 16 * 16;
constexpr int ticket_offset = barrier_offset + 8 * barriers;
constexpr int shared_bytes =
    packed ? packed_tile_offset + 32 : ticket_offset + (takes_tickets ? 8 : 0);
static_assert(shared_bytes == specialisation::shared_bytes, "host and kernel count alike");

/// The barrier by which the two warps of a pair meet; 0 is the block's.
__device__ __forceinline__ int pair_barrier(int pair) {
    return 1 + pair;
}
constexpr int pair_threads = 2 * warp_size;

/// Where things lie. Tiles are counted from the first one that the block visits.
struct SharedMemory {
    using KTile = kernel::KTile;
    using VTile = kernel::VTile;
    using QTile = kernel::QTile;
    using DOTile = kernel::DOTile;

    uint32_t base;

    __device__ __forceinline__ uint32_t k() const { return base + k_offset; }
    __device__ __forceinline__ uint32_t v() const { return base + v_offset; }
    __device__ __forceinline__ uint32_t q(int tile) const {
        return base + q_first_offset + tile % q_stages * (q_second_offset - q_first_offset);
    }
    __device__ __forceinline__ uint32_t d_o(int tile) const {
        return base + d_o_first_offset + tile % d_o_stages * (d_o_second_offset - d_o_first_offset);
    }
    __device__ __forceinline__ uint32_t d_s(int tile) const {
        return base + d_s_offset + tile % d_s_buffers * ScoreTile::bytes;
    }
    /// What a lane's partner has for it: 16 bytes of each fragment, of all lanes one after another.
    __device__ __forceinline__ uint32_t p(int pair, int lane) const {
        return base + p_offset + pair * (p_bytes / pairs) + lane * 16;
    }
    __device__ __forceinline__ uint32_t lse() const { return base + lse_offset; }
    __device__ __forceinline__ uint32_t delta() const { return base + delta_offset; }

    // Barriers, and the parity of the phase that a tile completes.
    __device__ __forceinline__ uint32_t kv_full() const { return base + barrier_offset; }
    __device__ __forceinline__ uint32_t q_full(int tile) const {
        return base + barrier_offset + 8 + tile % q_stages * 8;
    }
    __device__ __forceinline__ uint32_t d_o_full(int tile) const {
        return base + barrier_offset + 8 + q_stages * 8 + tile % d_o_stages * 8;
    }
    __device__ __forceinline__ uint32_t exchanged() const {
        return base + barrier_offset + 8 + (q_stages + d_o_stages) * 8;
    }
    __device__ __forceinline__ uint32_t d_o_read() const { return exchanged() + 8; }
    __device__ __forceinline__ uint32_t ticket() const { return base + ticket_offset; }
    __device__ __forceinline__ uint32_t packed_tile() const { return base + packed_tile_offset; }
    __device__ __forceinline__ static int q_parity(int tile) { return tile / q_stages % 2; }
    __device__ __forceinline__ static int d_o_parity(int tile) { return tile / d_o_stages % 2; }
    __device__ __forceinline__ static int parity(int tile) { return tile % 2; }
};

}  // namespace backlight::kernel
