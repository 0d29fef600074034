// How the warps of the register-resident mma kernel divide the tiles, their registers, and what
// lies where in shared memory.
#pragma once

#include "attention_backward_mma_resident/constants.cuh"
#include "primitives/mma.cuh"
#include "primitives/swizzle.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

// --- Warps and registers ------------------------------------------------------------------------

constexpr int warps = block_kv / mma_m;  // 16 keys each
constexpr int threads = warps * warp_size;

static_assert(warps == 4, "one warp a scheduler: the second comes with the second block");
static_assert(head_dim == 64 || head_dim == 128, "whole panels of 64 columns");
static_assert(block_q == 32 || (block_q == 64 && head_dim == 64),
              "the scores of more queries leave too few registers");

constexpr int depth_slices = head_dim / mma_k;        // of Sᵀ and dPᵀ
constexpr int gradient_fragments = head_dim / mma_n;  // dK, dV: 16 × head_dim a warp

// dQ is divided anew, since each warp holds all queries of its own keys only: here it takes all
// keys, and a part that is as nearly square as may be, which reads the fewest fragments.
constexpr int d_q_row_parts = block_q == 64 ? 2 : 1;
constexpr int d_q_column_parts = warps / d_q_row_parts;
constexpr int d_q_rows = block_q / d_q_row_parts;
constexpr int d_q_columns = head_dim / d_q_column_parts;
constexpr int d_q_row_fragments = d_q_rows / mma_m;
constexpr int d_q_column_fragments = d_q_columns / mma_n;

using VOperands = OperandRegister[depth_slices][4];
using GradientAccumulator = AccumulatorRegister[gradient_fragments][4];
using DqAccumulator = AccumulatorRegister[d_q_row_fragments][d_q_column_fragments][4];

//                            head_dim 128        head_dim 64
//     block_q                32                  64          32
//     dK, dV                 64 + 64             32 + 32     32 + 32
//     V as operands          32                  16          16
//     Sᵀ, dPᵀ                16 + 16             32 + 32     16 + 16
//     P, dS as operands      8 + 8               16 + 16     8 + 8
//     fragments under way, statistics, addresses: the rest
//
// Blocks on the same multiprocessor fill each other's waits; 65,536 registers are 255 a thread for
// two of them and 168 for three.
constexpr int most_blocks_by_registers = head_dim == 64 && block_q == 32 ? 3 : 2;

// Where three share them, a few addresses too many would be held across the loop; so they would
// where its tiles may be edges.
constexpr bool d_q_addresses_held = most_blocks_by_registers < 3;

// --- Shared memory ------------------------------------------------------------------------------

using KvTile = SwizzledTile<block_kv, head_dim>;
using QueryTile = SwizzledTile<block_q, head_dim>;
/// dSᵀ: a row a key.
using ScoreTile = SwizzledTile<block_kv, block_q>;

static_assert(walkable_span<KvTile, d_q_columns>, "a warp's columns of dQ fill or divide panels");

// dO, LSE and delta of the next tile take the places of this one's, whose last uses lie ahead of
// this tile's dK and dQ; Q is used for dK, and so the next one needs a place of its own.
constexpr int q_stages = 2;
constexpr int d_s_buffers = 2;
constexpr int statistics_bytes = block_q * 4;

constexpr int k_offset = 0;
constexpr int q_first_offset = k_offset + KvTile::bytes;
constexpr int d_o_offset = q_first_offset + QueryTile::bytes;
constexpr int q_second_offset = d_o_offset + QueryTile::bytes;
constexpr int d_s_offset = q_second_offset + QueryTile::bytes;
constexpr int lse_offset = d_s_offset + d_s_buffers * ScoreTile::bytes;
constexpr int delta_offset = lse_offset + statistics_bytes;
constexpr int barrier_offset = delta_offset + statistics_bytes;
constexpr int barriers = 1 + q_stages + 1 + 1;
constexpr int ticket_offset = barrier_offset + 8 * barriers;
// Where sequences are packed, what the ticket stands for takes its place.
constexpr int packed_work_bytes = 32;
constexpr int packed_tile_offset = (ticket_offset + 15) / 16 * 16;
constexpr int packed_conversion_offset = packed_tile_offset + packed_work_bytes;
constexpr int shared_bytes = packed
                                 ? packed_tile_offset + (converts_d_q ? 2 : 1) * packed_work_bytes
                                 : ticket_offset + (takes_tickets ? 8 : 0);
static_assert(shared_bytes == specialisation::shared_bytes, "host and kernel count alike");

// V goes to registers before the first tile, by way of what is first written after that.
constexpr int v_offset = lse_offset - KvTile::bytes;
static_assert(v_offset >= q_second_offset && v_offset % 1024 == 0,
              "V lies over the second stage of Q and dS alone");

constexpr int blocks_by_shared_memory =
    specialisation::shared_bytes_per_multiprocessor / (shared_bytes + 1024);
constexpr int blocks_per_multiprocessor = blocks_by_shared_memory < 1 ? 1
                                          : blocks_by_shared_memory < most_blocks_by_registers
                                              ? blocks_by_shared_memory
                                              : most_blocks_by_registers;

/// Where things lie. Tiles are counted from the first one that the block visits.
struct SharedMemory {
    using KTile = KvTile;
    using VTile = KvTile;
    using QTile = QueryTile;
    using DOTile = QueryTile;

    uint32_t base;

    __device__ __forceinline__ uint32_t k() const { return base + k_offset; }
    __device__ __forceinline__ uint32_t v() const { return base + v_offset; }
    __device__ __forceinline__ uint32_t q(int tile) const {
        return base + q_first_offset + tile % q_stages * (q_second_offset - q_first_offset);
    }
    __device__ __forceinline__ uint32_t d_o(int = 0) const { return base + d_o_offset; }
    __device__ __forceinline__ uint32_t d_s(int tile) const {
        return base + d_s_offset + tile % d_s_buffers * ScoreTile::bytes;
    }
    __device__ __forceinline__ uint32_t lse() const { return base + lse_offset; }
    __device__ __forceinline__ uint32_t delta() const { return base + delta_offset; }

    // Barriers, and the parity of the phase that a tile completes.
    __device__ __forceinline__ uint32_t kv_full() const { return base + barrier_offset; }
    __device__ __forceinline__ uint32_t q_full(int tile) const {
        return base + barrier_offset + 8 + tile % q_stages * 8;
    }
    __device__ __forceinline__ uint32_t d_o_full(int = 0) const {
        return base + barrier_offset + 8 + q_stages * 8;
    }
    __device__ __forceinline__ uint32_t exchanged() const { return d_o_full() + 8; }
    __device__ __forceinline__ uint32_t ticket() const { return base + ticket_offset; }
    __device__ __forceinline__ uint32_t packed_tile() const { return base + packed_tile_offset; }
    __device__ __forceinline__ uint32_t packed_conversion() const {
        return base + packed_conversion_offset;
    }
    __device__ __forceinline__ static int q_parity(int tile) { return tile / q_stages % 2; }
    __device__ __forceinline__ static int parity(int tile) { return tile % 2; }
};

}  // namespace backlight::kernel
