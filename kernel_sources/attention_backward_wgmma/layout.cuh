// The wgmma kernel's roles, their registers, and what lies where in shared memory.
#pragma once

#include "primitives/swizzle.cuh"
#include "primitives/types.cuh"
#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::block_kv;
using specialisation::block_q;
using specialisation::bounded_last_diagonal;
using specialisation::causal;
using specialisation::deterministic;
using specialisation::fp32_gradients;
using specialisation::grouped_heads;
using specialisation::head_dim;
using specialisation::packed;
using specialisation::partial_key_tiles;
using specialisation::partial_query_tiles;
using specialisation::stages;
using Element = specialisation::Element;

// Whether the loader tells the key warpgroups which step comes next (see Step). Where all key tiles
// have the same queries, or those from a square causal mask's diagonal on, they count along.
constexpr bool posts_steps = bounded_last_diagonal || partial_key_tiles || grouped_heads;
// Whether a key tile's first queries come first (see turns.cuh), not last.
constexpr bool walks_up = deterministic;

// --- Roles and registers ------------------------------------------------------------------------

constexpr int warpgroup_size = 128;
constexpr int warps_per_warpgroup = warpgroup_size / warp_size;
constexpr int keys_per_warpgroup = 64;
constexpr int key_warpgroups = block_kv / keys_per_warpgroup;
constexpr int query_warpgroup = key_warpgroups;
constexpr int loader_warpgroup = key_warpgroups + 1;
constexpr int threads = (key_warpgroups + 2) * warpgroup_size;
// Of the loader warpgroup's other warps one counts turns, where they are taken; the rest convert.
constexpr int conversion_threads = deterministic ? 64 : 96;
// All but the loader's and that one.
constexpr int working_warps = threads / warp_size - (deterministic ? 2 : 1);
constexpr int key_warps = key_warpgroups * warps_per_warpgroup;

static_assert(key_warpgroups == 2, "the register budget is that of two key warpgroups");
static_assert(block_q == 64, "a query tile is the rows of one wgmma of dQ");
static_assert(head_dim == 64 || head_dim == 128, "whole panels of 64 columns");

// Operands that never change may stay in registers where dK and dV leave room: wgmma then reads
// half as much shared memory, whose bandwidth is what holds this kernel back.
constexpr bool k_resident = head_dim == 64;
constexpr bool v_resident = head_dim == 64;
// P stays in fp32 for dS where there is room, and is rounded for dV while dPᵀ is computed; else dS
// is computed from P as it was rounded.
constexpr bool p_unrounded = head_dim == 64;
// What was measured to be faster: to read LSE before Sᵀ begins, not behind it, where a read waits
// for the operands of the product; and to begin dK once dSᵀ is stored, not before.
constexpr bool lse_before_scores = head_dim == 64;
constexpr bool d_k_after_d_s = head_dim == 64;

constexpr int score_registers = block_q / 2;      // Sᵀ, dPᵀ: 64 × block_q a warpgroup
constexpr int gradient_registers = head_dim / 2;  // dK, dV: 64 × head_dim a warpgroup
constexpr int query_slices = block_q / 16;        // slices of the products dV and dK
constexpr int depth_slices = head_dim / 16;       // of Sᵀ and dPᵀ
constexpr int key_slices = block_kv / 16;         // of dQ
constexpr int d_q_part_columns = 64;              // dQ is computed in parts of that many columns
constexpr int d_q_parts = head_dim / d_q_part_columns;

//                            head_dim 128        head_dim 64
//     dK, dV                 64 + 64             32 + 32
//     Sᵀ, dPᵀ                32 (shared)         32 + 32
//     P, dS as operands      16                  16
//     K, V as operands       -                   16 + 16
//     statistics of a tile   16                  16
//     addresses, counters    the rest
//
// The four warpgroups share 65,536 registers, 512 for one thread of each.
constexpr int key_registers = 208;
constexpr int query_registers = 64;
constexpr int loader_registers = 32;
static_assert(key_warpgroups * key_registers + query_registers + loader_registers <= 512,
              "a multiprocessor has 65,536 registers");

// --- Shared memory ------------------------------------------------------------------------------

using KvTile = SwizzledTile<block_kv, head_dim>;
using QueryTile = SwizzledTile<block_q, head_dim>;
/// dSᵀ: a row a key.
using ScoreTile = SwizzledTile<block_kv, block_q>;

// Where there is room, the next key tile is loaded while this one is worked on.
constexpr int kv_buffers = head_dim == 64 ? 2 : 1;
constexpr int d_s_buffers = 2;
constexpr int d_q_buffers = 2;
/// Tickets that the loader may be ahead of the slowest role.
constexpr int work_slots = 6;
constexpr int d_q_part_bytes = block_q * d_q_part_columns * 4;
constexpr int conversion_buffers = 3;
constexpr int conversion_buffer_bytes = d_q_part_bytes / 2;
// Where steps are posted, turns are taken, or key warpgroups put their tile down, that takes from
// the zeros.
constexpr int zeros_bytes = posts_steps || deterministic || fp32_gradients ? 512 : 1024;
constexpr int step_bytes = 16;
constexpr int tile_bytes = 16;
constexpr int turn_slots = 2;
constexpr int statistics_bytes = block_q * 4;

constexpr int k_offset = 0;
constexpr int v_offset = k_offset + kv_buffers * KvTile::bytes;
constexpr int q_offset = v_offset + kv_buffers * KvTile::bytes;
constexpr int d_o_offset = q_offset + stages * QueryTile::bytes;
constexpr int d_s_offset = d_o_offset + stages * QueryTile::bytes;
constexpr int d_q_offset = d_s_offset + d_s_buffers * ScoreTile::bytes;
// dK leaves through a place of its own, or over dSᵀ: two panels of the same form.
constexpr bool d_k_has_place = head_dim == 64;
static_assert(d_k_has_place ||
              (d_s_buffers == KvTile::panels && ScoreTile::panel_bytes == KvTile::panel_bytes));
constexpr int d_k_offset = d_q_offset + d_q_buffers * d_q_part_bytes;
constexpr int unconverted_offset = d_k_offset + (d_k_has_place ? KvTile::bytes : 0);
constexpr int converted_offset = unconverted_offset + conversion_buffers * conversion_buffer_bytes;
constexpr int zeros_offset = converted_offset + d_q_part_bytes / 2;
constexpr int steps_offset = zeros_offset + zeros_bytes;
constexpr int tiles_offset = steps_offset + stages * step_bytes;
constexpr int sum_place_offset = tiles_offset + key_warpgroups * tile_bytes;
constexpr int turns_offset = sum_place_offset + 8;
constexpr int turn_barriers_offset = turns_offset + turn_slots * 8;
constexpr int lse_offset = zeros_offset + 1024;
static_assert(zeros_bytes == 1024 || turn_barriers_offset + turn_slots * 16 <= lse_offset);
constexpr int delta_offset = lse_offset + stages * statistics_bytes;
// A tile and a conversion, of which packed sequences have more to tell.
constexpr int tile_work_bytes = packed ? 32 : 16;
constexpr int work_bytes = 2 * tile_work_bytes;
constexpr int work_offset = delta_offset + stages * statistics_bytes;
constexpr int barrier_offset = work_offset + work_slots * work_bytes;

constexpr int barriers =
    4 * kv_buffers + 4 * stages + 2 * d_s_buffers + 2 * work_slots + conversion_buffers;
constexpr int shared_bytes = barrier_offset + 8 * barriers;
static_assert(shared_bytes == specialisation::shared_bytes, "host and kernel count alike");

/// Where things lie.
struct SharedMemory {
    uint32_t base;

    __device__ __forceinline__ uint32_t k(int buffer) const {
        return base + k_offset + buffer * KvTile::bytes;
    }
    __device__ __forceinline__ uint32_t v(int buffer) const {
        return base + v_offset + buffer * KvTile::bytes;
    }
    __device__ __forceinline__ uint32_t q(int stage) const {
        return base + q_offset + stage * QueryTile::bytes;
    }
    __device__ __forceinline__ uint32_t d_o(int stage) const {
        return base + d_o_offset + stage * QueryTile::bytes;
    }
    __device__ __forceinline__ uint32_t d_s(int buffer) const {
        return base + d_s_offset + buffer * ScoreTile::bytes;
    }
    __device__ __forceinline__ uint32_t d_q(int buffer) const {
        return base + d_q_offset + buffer * d_q_part_bytes;
    }
    __device__ __forceinline__ uint32_t d_k() const {
        return d_k_has_place ? base + d_k_offset : d_s(0);
    }
    /// Half a part of dQ on its way from the accumulator to its own type, and a part in that type.
    __device__ __forceinline__ uint32_t unconverted(int buffer) const {
        return base + unconverted_offset + buffer * conversion_buffer_bytes;
    }
    __device__ __forceinline__ uint32_t converted() const { return base + converted_offset; }
    __device__ __forceinline__ uint32_t zeros() const { return base + zeros_offset; }
    /// What the stage's query tile is for.
    __device__ __forceinline__ uint32_t step(int stage) const {
        return base + steps_offset + stage * step_bytes;
    }
    /// What a key warpgroup works on.
    __device__ __forceinline__ uint32_t tile(int warpgroup) const {
        return base + tiles_offset + warpgroup * tile_bytes;
    }
    /// Where the accumulator holds what is added to.
    __device__ __forceinline__ uint32_t sum_place() const { return base + sum_place_offset; }
    /// The counter of a turn that has been taken.
    __device__ __forceinline__ uint32_t turn(int slot) const {
        return base + turns_offset + slot * 8;
    }
    __device__ __forceinline__ uint32_t turn_full(int slot) const {
        return base + turn_barriers_offset + slot * 8;
    }
    __device__ __forceinline__ uint32_t turn_empty(int slot) const {
        return turn_full(turn_slots + slot);
    }
    __device__ __forceinline__ uint32_t lse(int stage) const {
        return base + lse_offset + stage * statistics_bytes;
    }
    __device__ __forceinline__ uint32_t delta(int stage) const {
        return base + delta_offset + stage * statistics_bytes;
    }
    __device__ __forceinline__ uint32_t work(int slot) const {
        return base + work_offset + work_bytes * slot;
    }

    // Barriers, in the order in which they lie.
    __device__ __forceinline__ uint32_t k_full(int buffer) const { return barrier(buffer); }
    __device__ __forceinline__ uint32_t k_empty(int buffer) const {
        return barrier(kv_buffers + buffer);
    }
    __device__ __forceinline__ uint32_t v_full(int buffer) const {
        return barrier(2 * kv_buffers + buffer);
    }
    __device__ __forceinline__ uint32_t v_empty(int buffer) const {
        return barrier(3 * kv_buffers + buffer);
    }
    __device__ __forceinline__ uint32_t q_full(int stage) const {
        return barrier(4 * kv_buffers + stage);
    }
    __device__ __forceinline__ uint32_t q_empty(int stage) const { return q_full(stages + stage); }
    __device__ __forceinline__ uint32_t d_o_full(int stage) const {
        return q_full(2 * stages + stage);
    }
    __device__ __forceinline__ uint32_t d_o_empty(int stage) const {
        return q_full(3 * stages + stage);
    }
    __device__ __forceinline__ uint32_t d_s_full(int buffer) const {
        return q_full(4 * stages + buffer);
    }
    __device__ __forceinline__ uint32_t d_s_empty(int buffer) const {
        return d_s_full(d_s_buffers + buffer);
    }
    __device__ __forceinline__ uint32_t work_full(int slot) const {
        return d_s_full(2 * d_s_buffers + slot);
    }
    __device__ __forceinline__ uint32_t work_empty(int slot) const {
        return work_full(work_slots + slot);
    }
    __device__ __forceinline__ uint32_t conversion_full(int buffer) const {
        return work_full(2 * work_slots + buffer);
    }

  private:
    __device__ __forceinline__ uint32_t barrier(int number) const {
        return base + barrier_offset + 8 * number;
    }
};

/// Named barriers; 0 is the whole block's.
enum NamedBarrier : int {
    key_warpgroup_0 = 1,
    key_warpgroup_1,
    query_warpgroup_own,
    conversion_warps_own,
};

/// A position in a ring of `slots` buffers, and the parity of its barriers' current phase.
template <int slots>
struct RingPosition {
    int slot = 0;
    int parity = 0;

    __device__ __forceinline__ void advance() {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

/// The same in one register, for roles that are short of them.
template <int slots>
class CompactRingPosition {
  public:
    __device__ __forceinline__ int slot() const {
        return position_ < slots ? position_ : position_ - slots;
    }
    __device__ __forceinline__ int parity() const { return position_ < slots ? 0 : 1; }
    __device__ __forceinline__ void advance() {
        if (++position_ == 2 * slots) {
            position_ = 0;
        }
    }

  private:
    int position_ = 0;
};

}  // namespace backlight::kernel
