// The attention backward for Hopper: wgmma and TMA, the work divided among specialised warpgroups.
//
// A block works on tiles of block_kv = 128 keys and values of one head, and walks over the queries
// in tiles of 64. Everything is computed transposed, with keys as rows, so that P and dS are fed
// to the next product from the registers in which they arise:
//
//     Sᵀ  = K Qᵀ         dPᵀ = V dOᵀ
//     P   = exp(scale · S − LSE)
//     dS  = P ∘ (dP − delta)                   dSᵀ alone goes to shared memory
//     dV += Pᵀ dO        dK += dSᵀ Q
//     dQ  = dS K                               summed over key tiles in an fp32 accumulator
//
// Roles, a warpgroup (128 threads) each:
//
//     key warpgroups 0, 1   own 64 keys each: Sᵀ, dPᵀ, dV, dK
//     query warpgroup       all of dQ, and its way out of the block
//     loader                one thread lets TMA bring tiles; see head_per_block for its other warps
//
// A step of a key warpgroup, one query tile; Pᵀ of the tile is in registers when it begins, so that
// no product is under way where the loop turns back:
//
//     tensor cores   | dPᵀ(i) | dV(i) |            | dK(i) | Sᵀ(i+1) |
//     other units                      dS(i) … dSᵀ(i) to shared memory  exp → Pᵀ(i+1)
//
// The two key warpgroups run apart by about half a step, so that one's arithmetic lies beside the
// other's products, and nothing in the loop makes the whole block wait. Stages go by mbarriers:
//
//     kv_full            loader → all          K and V have arrived
//     kv_empty           all → loader          K and V, and dK and dV stored over them, are done
//     with q_full, d_o_full   loader → key          a query tile with its LSE, a dO tile with its
//     delta q_empty, d_o_empty key → loader d_s_full           key → query           dSᵀ of both
//     key warpgroups is in shared memory d_s_empty          query → key
//
// Blocks take their tile by a ticket, in the order in which they begin, so that one that waits for
// another (see DqSum) waits for one that runs. They visit queries from the last to the first: with
// the causal mask, too, all blocks of a head then begin with the same query tile.
//
// dQ and dK lack the factor softmax_scale until they are stored.
#include "arguments/attention_backward.h"
#include "primitives/bulk_copy.cuh"
#include "primitives/conversion.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/exponential.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/ldmatrix.cuh"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/named_barrier.cuh"
#include "primitives/proxy_fence.cuh"
#include "primitives/register_allocation.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/swizzle.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"
#include "primitives/wgmma.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::block_kv;
using specialisation::block_q;
using specialisation::causal;
using specialisation::head_dim;
using specialisation::stages;
using Element = specialisation::Element;

// --- Roles and registers ------------------------------------------------------------------------

constexpr int warpgroup_size = 128;
constexpr int warps_per_warpgroup = warpgroup_size / warp_size;
constexpr int keys_per_warpgroup = 64;
constexpr int key_warpgroups = block_kv / keys_per_warpgroup;
constexpr int query_warpgroup = key_warpgroups;
constexpr int loader_warpgroup = key_warpgroups + 1;
constexpr int threads = (key_warpgroups + 2) * warpgroup_size;
constexpr int conversion_threads = 96;  // the loader warpgroup's other warps
constexpr int key_warps = key_warpgroups * warps_per_warpgroup;

static_assert(key_warpgroups == 2, "the register budget is that of two key warpgroups");
static_assert(block_q == 64, "a query tile is one wgmma wide");
static_assert(head_dim == 64 || head_dim == 128, "whole panels of 64 columns");

// Operands that never change may stay in registers where dK and dV leave room: wgmma then reads
// half as much shared memory, whose bandwidth is what holds this kernel back.
constexpr bool k_resident = head_dim == 64;
constexpr bool v_resident = head_dim == 64;
// P stays in fp32 for dS where there is room; else dS is computed from P as it was rounded for dV.
constexpr bool p_unrounded = head_dim == 64;

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
constexpr int work_slots = 8;
constexpr int d_q_part_bytes = block_q * d_q_part_columns * 4;
constexpr int statistics_bytes = block_q * 4;

constexpr int k_offset = 0;
constexpr int v_offset = k_offset + kv_buffers * KvTile::bytes;
constexpr int q_offset = v_offset + kv_buffers * KvTile::bytes;
constexpr int d_o_offset = q_offset + stages * QueryTile::bytes;
constexpr int d_s_offset = d_o_offset + stages * QueryTile::bytes;
constexpr int d_q_offset = d_s_offset + d_s_buffers * ScoreTile::bytes;
// dK leaves through a place of its own, or over V once dV has left.
constexpr bool d_k_has_place = head_dim == 64;
constexpr int d_k_offset = d_q_offset + d_q_buffers * d_q_part_bytes;
constexpr int unconverted_offset = d_k_offset + (d_k_has_place ? KvTile::bytes : 0);
constexpr int converted_offset = unconverted_offset + d_q_part_bytes;
constexpr int lse_offset = converted_offset + d_q_part_bytes / 2;
constexpr int delta_offset = lse_offset + stages * statistics_bytes;
constexpr int work_bytes = 32;
constexpr int work_offset = delta_offset + stages * statistics_bytes;
constexpr int barrier_offset = work_offset + work_slots * work_bytes;

constexpr int barriers = 4 * kv_buffers + 4 * stages + 2 * d_s_buffers + 2 * work_slots + 2;
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
    __device__ __forceinline__ uint32_t d_k(int buffer) const {
        return d_k_has_place ? base + d_k_offset : v(buffer);
    }
    /// A part of dQ on its way from the accumulator to dQ's own type.
    __device__ __forceinline__ uint32_t unconverted() const { return base + unconverted_offset; }
    __device__ __forceinline__ uint32_t converted() const { return base + converted_offset; }
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

// --- The work of a block ------------------------------------------------------------------------

/// A tile of keys, and the queries that see it.
struct Tile {
    int batch;
    int head;
    int batch_head;
    int kv_start;

    /// Query tiles that lie wholly above the diagonal see none of these keys.
    __device__ __forceinline__ int first_query_tile() const {
        return causal ? kv_start / block_q : 0;
    }
};

/// Query tiles whose dQ is complete and wants to be converted.
struct Conversion {
    int batch_head;
    int first_query_tile;
    int query_tiles;
};

/// Lengths in tiles.
__device__ __forceinline__ int query_tiles_of(const WgmmaArguments& arguments) {
    return (specialisation::seqlen_q != 0 ? specialisation::seqlen_q : arguments.seqlen_q) /
           block_q;
}
__device__ __forceinline__ int kv_tiles_of(const WgmmaArguments& arguments) {
    return (specialisation::seqlen_kv != 0 ? specialisation::seqlen_kv : arguments.seqlen_kv) /
           block_kv;
}

/// What a ticket stands for. Heads are taken in groups, whose queries and dQ the L2 cache holds,
/// and within a group those tiles come first that most queries see. In round r begin
///
///     the first key tiles (see DqSum) of group r,
///     the other key tiles of group r − lead_groups,
///     the conversion of the dQ of group r − lead_groups − conversion_lag;
///
/// the host chooses both distances such that what one waits for has most often happened. Rounds at
/// either end are not full.
struct Work {
    // In place of a (batch, head) index: there is nothing of the kind to do; no ticket is left.
    static constexpr int nothing = -1;
    static constexpr int end = -2;

    Tile tile;
    Conversion conversion;

    __device__ __forceinline__ bool has_tile() const { return tile.batch_head >= 0; }
    __device__ __forceinline__ bool has_conversion() const { return conversion.batch_head >= 0; }
    __device__ __forceinline__ bool is_end() const { return tile.batch_head == end; }

    __device__ __forceinline__ Work() {}

    __device__ __forceinline__ Work(const WgmmaArguments& arguments, int ticket) {
        constexpr int group_heads = specialisation::heads_per_group;
        const int kv_tiles = kv_tiles_of(arguments);
        const int query_tiles = query_tiles_of(arguments);
        const int round = ticket / (group_heads * kv_tiles);
        const int in_round = ticket - round * group_heads * kv_tiles;
        const int kv_tile = in_round / group_heads;
        const int head_in_group = in_round % group_heads;

        const int tile_group = kv_tile == 0 ? round : round - arguments.lead_groups;
        tile.batch_head = head_of(arguments, tile_group, head_in_group);
        tile.batch = tile.batch_head / arguments.heads;
        tile.head = tile.batch_head % arguments.heads;
        tile.kv_start = kv_tile * block_kv;
        if (ticket >= arguments.tickets) {
            tile.batch_head = end;
        }

        const int conversion_group = round - arguments.lead_groups - arguments.conversion_lag;
        conversion.batch_head = head_of(arguments, conversion_group, head_in_group);
        // A head's query tiles are shared among as many blocks as it has key tiles.
        conversion.first_query_tile = kv_tile * query_tiles / kv_tiles;
        conversion.query_tiles =
            (kv_tile + 1) * query_tiles / kv_tiles - conversion.first_query_tile;
    }

  private:
    __device__ __forceinline__ static int head_of(const WgmmaArguments& arguments, int group,
                                                  int head_in_group) {
        const int batch_head = group * specialisation::heads_per_group + head_in_group;
        return group >= 0 && batch_head < arguments.batch_heads ? batch_head : nothing;
    }
};

// --- The loader ---------------------------------------------------------------------------------

/// Copies `Tile::panels` panels, from row `row` of the head's matrix on.
template <typename SharedTile>
__device__ __forceinline__ void load_tile(uint32_t destination, const TensorMap& map, int row,
                                          const Tile& tile, uint32_t barrier) {
#pragma unroll
    for (int panel = 0; panel < SharedTile::panels; ++panel) {
        tma_load_4d(destination + panel * SharedTile::panel_bytes, &map,
                    panel * SharedTile::panel_columns, row, tile.head, tile.batch, barrier);
    }
}

/// One thread: takes tickets, tells the others of them, and brings what they need.
class Loader {
  public:
    __device__ __forceinline__ Loader(const WgmmaArguments& arguments, SharedMemory shared)
        : arguments_(arguments), shared_(shared) {}

    __device__ __forceinline__ void work() {
        // The counters, LSE and delta come from the delta kernel.
        wait_for_previous_kernel();
        while (true) {
            // Not before the loads of the last one: who holds a ticket keeps others waiting.
            const Work work(arguments_, static_cast<int>(take_ticket(arguments_.counters.tickets)));
            post(work);
            if (work.is_end()) {
                return;
            }
            if (work.has_tile()) {
                load(work.tile);
            }
        }
    }

  private:
    /// For the other roles to read.
    __device__ __forceinline__ void post(const Work& work) {
        const int slot = work_ring_.slot;
        mbarrier_wait(shared_.work_empty(slot), work_ring_.parity ^ 1);
        const auto word = [](int value) { return static_cast<uint32_t>(value); };
        store_shared(shared_.work(slot), uint4{word(work.tile.batch_head), word(work.tile.batch),
                                               word(work.tile.head), word(work.tile.kv_start)});
        store_shared(shared_.work(slot) + 16,
                     uint4{word(work.conversion.batch_head), word(work.conversion.first_query_tile),
                           word(work.conversion.query_tiles), 0});
        mbarrier_arrive(shared_.work_full(slot));
        work_ring_.advance();
    }

    __device__ __forceinline__ void load(const Tile& tile) {
        const int buffer = kv_ring_.slot;
        const int kv_parity = kv_ring_.parity;
        kv_ring_.advance();
        mbarrier_wait(shared_.k_empty(buffer), kv_parity ^ 1);
        mbarrier_arrive_expect_bytes(shared_.k_full(buffer), KvTile::bytes);
        load_tile<KvTile>(shared_.k(buffer), arguments_.k, tile.kv_start, tile,
                          shared_.k_full(buffer));
        const int query_tiles = query_tiles_of(arguments_);
        const int64_t head_row = static_cast<int64_t>(tile.batch_head) * query_tiles * block_q;
        bool v_loaded = false;
        for (int query_tile = query_tiles - 1; query_tile >= tile.first_query_tile();
             --query_tile) {
            const int query_start = query_tile * block_q;
            const int stage = query_ring_.slot;
            const int parity = query_ring_.parity;
            query_ring_.advance();
            mbarrier_wait(shared_.q_empty(stage), parity ^ 1);
            mbarrier_arrive_expect_bytes(shared_.q_full(stage),
                                         QueryTile::bytes + statistics_bytes);
            load_tile<QueryTile>(shared_.q(stage), arguments_.q, query_start, tile,
                                 shared_.q_full(stage));
            bulk_load(shared_.lse(stage), arguments_.negated_lse_log2 + head_row + query_start,
                      statistics_bytes, shared_.q_full(stage));
            if (!v_loaded) {
                v_loaded = true;
                mbarrier_wait(shared_.v_empty(buffer), kv_parity ^ 1);
                mbarrier_arrive_expect_bytes(shared_.v_full(buffer), KvTile::bytes);
                load_tile<KvTile>(shared_.v(buffer), arguments_.v, tile.kv_start, tile,
                                  shared_.v_full(buffer));
            }
            mbarrier_wait(shared_.d_o_empty(stage), parity ^ 1);
            mbarrier_arrive_expect_bytes(shared_.d_o_full(stage),
                                         QueryTile::bytes + statistics_bytes);
            load_tile<QueryTile>(shared_.d_o(stage), arguments_.d_o, query_start, tile,
                                 shared_.d_o_full(stage));
            bulk_load(shared_.delta(stage), arguments_.negated_delta + head_row + query_start,
                      statistics_bytes, shared_.d_o_full(stage));
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    RingPosition<work_slots> work_ring_;
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<stages> query_ring_;
};

/// What the loader has posted, as a warp of another role sees it.
class PostedWork {
  public:
    __device__ __forceinline__ explicit PostedWork(SharedMemory shared) : shared_(shared) {}

    /// The next piece of work.
    __device__ __forceinline__ Work next(int lane) {
        mbarrier_wait(shared_.work_full(ring_.slot), ring_.parity);
        const auto tile = load_shared<uint4>(shared_.work(ring_.slot));
        const auto conversion = load_shared<uint4>(shared_.work(ring_.slot) + 16);
        __syncwarp();
        if (lane == 0) {
            mbarrier_arrive(shared_.work_empty(ring_.slot));
        }
        ring_.advance();
        const auto number = [](uint32_t word) { return static_cast<int>(word); };
        Work work;
        work.tile = {number(tile.y), number(tile.z), number(tile.x), number(tile.w)};
        work.conversion = {number(conversion.x), number(conversion.y), number(conversion.z)};
        return work;
    }

  private:
    SharedMemory shared_;
    RingPosition<work_slots> ring_;
};

// --- The key warpgroups -------------------------------------------------------------------------

/// What a thread needs of the statistics of a query tile: of each group of 16 queries those four
/// that it holds scores of. They lie next to each other (see the delta kernel).
struct TileStatistics {
    float4 values[query_slices];

    __device__ __forceinline__ void load(uint32_t statistics, int lane) {
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            values[slice] = load_shared<float4>(statistics + slice * 64 + lane % 4 * 16);
        }
    }

    /// Of register `i` of an accumulator.
    __device__ __forceinline__ float of(int i) const {
        const float4 value = values[i / 8];
        return (i & 4) != 0 ? ((i & 1) != 0 ? value.w : value.z)
                            : ((i & 1) != 0 ? value.y : value.x);
    }
};

/// Everything that a thread of a key warpgroup carries from step to step.
struct KeyState {
    AccumulatorRegister d_k[gradient_registers];
    AccumulatorRegister d_v[gradient_registers];
    // Sᵀ, then P; and dPᵀ, in the same registers where P is not kept.
    AccumulatorRegister scores[p_unrounded ? 2 : 1][score_registers];
    // P, and after dV dSᵀ, as operands of 16 queries a slice.
    OperandRegister p[query_slices][4];
    OperandRegister k[k_resident ? depth_slices : 1][4];
    OperandRegister v[v_resident ? depth_slices : 1][4];

    __device__ __forceinline__ AccumulatorRegister (&d_p())[score_registers] {
        return scores[p_unrounded ? 1 : 0];
    }
};

class KeyWarpgroup {
  public:
    __device__ __forceinline__ KeyWarpgroup(const WgmmaArguments& arguments, SharedMemory shared,
                                            int warpgroup, int thread)
        : arguments_(arguments),
          shared_(shared),
          warpgroup_(warpgroup),
          lane_(thread % warp_size) {}

    __device__ __forceinline__ void work() {
        PostedWork posted(shared_);
        for (Work work = posted.next(lane_); !work.is_end(); work = posted.next(lane_)) {
            if (work.has_tile()) {
                work_on(work.tile);
            }
        }
        if (is_store_thread()) {
            bulk_wait<0>();
        }
    }

  private:
    __device__ __forceinline__ void work_on(const Tile& tile) {
#pragma unroll
        for (int i = 0; i < gradient_registers; ++i) {
            state_.d_k[i] = 0;
            state_.d_v[i] = 0;
        }
        mbarrier_wait(shared_.k_full(kv_ring_.slot), kv_ring_.parity);
        if constexpr (k_resident) {
            load_operand(state_.k, shared_.k(kv_ring_.slot));
        }
        mbarrier_wait(shared_.q_full(query_ring_.slot), query_ring_.parity);
        begin_scores();
        TileStatistics lse;
        lse.load(shared_.lse(query_ring_.slot), lane_);
        wgmma_wait<0>();
        int query_tile = query_tiles_of(arguments_) - 1;
        exponentiate(tile, query_tile, lse);
        mbarrier_wait(shared_.v_full(kv_ring_.slot), kv_ring_.parity);
        if constexpr (v_resident) {
            load_operand(state_.v, shared_.v(kv_ring_.slot));
        }
        const int last = last_query_tile(tile);
        for (; query_tile > last; --query_tile) {
            step<false>(tile, query_tile);
        }
        step<true>(tile, query_tile);
        if (last != tile.first_query_tile()) {
            skip_step();
        }
        store_gradients(tile);
        kv_ring_.advance();
    }

    /// The warp's 16 rows of K or V.
    template <int slices>
    __device__ __forceinline__ void load_operand(OperandRegister (&operand)[slices][4],
                                                 uint32_t tile) {
        const int row = warpgroup_ * keys_per_warpgroup + warp() * 16 + lane_ % 16;
        const uint32_t address = KvTile{tile}.address(row, lane_ / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < slices; ++slice) {
            ldmatrix_x4(operand[slice], KvTile::moved(address, 0, slice * 16));
        }
    }

    /// product = A · Bᵀ over head_dim: this warpgroup's rows of K with Q, or of V with dO.
    template <int resident_slices>
    __device__ __forceinline__ void multiply_by_queries(
        AccumulatorRegister (&product)[score_registers],
        const OperandRegister (&resident)[resident_slices][4], uint32_t a_tile, uint32_t b_tile) {
        constexpr MatrixLayout layout = k_major_layout(MatrixSwizzle::bytes_128);
        const MatrixDescriptor b(b_tile, layout);
        const MatrixDescriptor a(a_tile + warpgroup_ * keys_per_warpgroup * KvTile::row_bytes,
                                 layout);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < depth_slices; ++slice) {
            const int panel = slice / 4;
            const int in_panel = slice % 4 * k_major_step;
            const MatrixDescriptor b_slice = b.advanced(panel * QueryTile::panel_bytes + in_panel);
            if constexpr (resident_slices == depth_slices) {
                wgmma_m64k16<Element, block_q, Major::k>(product, resident[slice], b_slice,
                                                         slice > 0);
            } else {
                wgmma_m64k16<Element, block_q, Major::k, Major::k>(
                    product, a.advanced(panel * KvTile::panel_bytes + in_panel), b_slice,
                    slice > 0);
            }
        }
        wgmma_commit();
    }

    /// gradient += A · B over the queries of the tile: P with dO, or dSᵀ with Q.
    __device__ __forceinline__ void multiply_by_operands(
        AccumulatorRegister (&gradient)[gradient_registers], uint32_t b_tile) {
        const MatrixDescriptor b(b_tile,
                                 mn_major_layout(MatrixSwizzle::bytes_128, QueryTile::panel_bytes));
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            wgmma_m64k16<Element, head_dim, Major::mn>(
                gradient, state_.p[slice],
                b.advanced(slice * mn_major_step(MatrixSwizzle::bytes_128)), true);
        }
        wgmma_commit();
    }

    /// Sᵀ of the query tile in the ring's current stage.
    __device__ __forceinline__ void begin_scores() {
        multiply_by_queries(state_.scores[0], state_.k, shared_.k(kv_ring_.slot),
                            shared_.q(query_ring_.slot));
    }

    /// P = exp2(scale · log2(e) · S − LSE · log2(e)), kept as operands. Sᵀ is complete.
    __device__ __forceinline__ void exponentiate(const Tile& tile, int query_tile,
                                                 const TileStatistics& negated_lse) {
        AccumulatorRegister(&s)[score_registers] = state_.scores[0];
        wgmma_settle(s);
        const float scale = arguments_.softmax_scale_log2;
#pragma unroll
        for (int i = 0; i < score_registers; ++i) {
            s[i] = __fmaf_rn(s[i], scale, negated_lse.of(i));
        }
        if (causal && (query_tile - tile.first_query_tile()) * block_q < block_kv) {
            // How far the thread's first key lies behind its first query.
            const int behind = tile.kv_start + warpgroup_ * keys_per_warpgroup + warp() * 16 +
                               lane_ / 4 - query_tile * block_q - lane_ % 4 * 2;
#pragma unroll
            for (int i = 0; i < score_registers; ++i) {
                const int key = i / 2 % 2 * 8;
                const int query = i / 4 * 8 + i % 2;
                if (behind + key > query) {
                    s[i] = -infinity();
                }
            }
        }
#pragma unroll
        for (int i = 0; i < score_registers; ++i) {
            s[i] = exp2_approximate(s[i]);
        }
#pragma unroll
        for (int i = 0; i < score_registers / 2; ++i) {
            state_.p[i / 4][i % 4] = pack<Element>(s[2 * i], s[2 * i + 1]);
        }
    }

    /// dSᵀ = P ∘ (dPᵀ − delta), over the operands of P.
    __device__ __forceinline__ void differentiate(const TileStatistics& negated_delta) {
        AccumulatorRegister(&d_p)[score_registers] = state_.d_p();
#pragma unroll
        for (int i = 0; i < score_registers / 2; ++i) {
            OperandRegister& operand = state_.p[i / 4][i % 4];
            float2 p;
            if constexpr (p_unrounded) {
                p = float2{state_.scores[0][2 * i], state_.scores[0][2 * i + 1]};
            } else {
                p = unpack<Element>(operand);
            }
            operand = pack<Element>(p.x * (d_p[2 * i] + negated_delta.of(2 * i)),
                                    p.y * (d_p[2 * i + 1] + negated_delta.of(2 * i + 1)));
        }
    }

    /// This warp's 16 rows of dSᵀ, for the query warpgroup.
    __device__ __forceinline__ void store_d_s(uint32_t buffer) {
        const int row = warpgroup_ * keys_per_warpgroup + warp() * 16 + lane_ % 16;
        const uint32_t address = ScoreTile{buffer}.address(row, lane_ / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < query_slices; ++slice) {
            stmatrix_x4(ScoreTile::moved(address, 0, slice * 16), state_.p[slice]);
        }
    }

    /// The last that sees any of this warpgroup's keys: the second one's lie behind the queries of
    /// the first tile that the block visits.
    __device__ __forceinline__ int last_query_tile(const Tile& tile) const {
        return tile.first_query_tile() + (causal && warpgroup_ == 1 ? 1 : 0);
    }

    /// The query tile that sees none of this warpgroup's keys: the others must not wait for it.
    /// Each phase must have begun before the arrival that counts for it.
    __device__ __forceinline__ void skip_step() {
        const int stage = query_ring_.slot;
        mbarrier_wait(shared_.q_full(stage), query_ring_.parity);
        release(shared_.q_empty(stage));
        mbarrier_wait(shared_.d_o_full(stage), query_ring_.parity);
        release(shared_.d_o_empty(stage));
        query_ring_.advance();
        mbarrier_wait(shared_.d_s_empty(d_s_ring_.slot), d_s_ring_.parity ^ 1);
        release(shared_.d_s_full(d_s_ring_.slot));
        d_s_ring_.advance();
    }

    /// One query tile; afterwards P of the next one is ready, if there is one.
    template <bool last>
    __device__ __forceinline__ void step(const Tile& tile, int query_tile) {
        const int stage = query_ring_.slot;
        const int parity = query_ring_.parity;
        mbarrier_wait(shared_.d_o_full(stage), parity);
        multiply_by_queries(state_.d_p(), state_.v, shared_.v(kv_ring_.slot), shared_.d_o(stage));
        multiply_by_operands(state_.d_v, shared_.d_o(stage));
        TileStatistics delta;
        delta.load(shared_.delta(stage), lane_);
        wgmma_wait<0>();
        wgmma_settle(state_.d_p());
        wgmma_settle(state_.d_v);
        wgmma_settle(state_.p);
        release(shared_.d_o_empty(stage));

        differentiate(delta);
        multiply_by_operands(state_.d_k, shared_.q(stage));
        const int buffer = d_s_ring_.slot;
        mbarrier_wait(shared_.d_s_empty(buffer), d_s_ring_.parity ^ 1);
        store_d_s(shared_.d_s(buffer));
        fence_shared_before_async_proxy();
        release(shared_.d_s_full(buffer));
        d_s_ring_.advance();
        query_ring_.advance();

        if constexpr (last) {
            wgmma_wait<0>();
            settle_d_k();
            release(shared_.q_empty(stage));
        } else {
            const int next = query_ring_.slot;
            mbarrier_wait(shared_.q_full(next), query_ring_.parity);
            begin_scores();
            wgmma_wait<1>();
            settle_d_k();
            release(shared_.q_empty(stage));
            TileStatistics lse;
            lse.load(shared_.lse(next), lane_);
            wgmma_wait<0>();
            exponentiate(tile, query_tile - 1, lse);
        }
    }

    __device__ __forceinline__ void settle_d_k() {
        wgmma_settle(state_.d_k);
        wgmma_settle(state_.p);
    }

    /// This warp of the warpgroup. Asked for seldom: not worth a register.
    __device__ __forceinline__ static int warp() {
        return static_cast<int>(opaque(threadIdx.x)) / warp_size % warps_per_warpgroup;
    }

    /// Waits for the rest of the warpgroup.
    __device__ __forceinline__ void synchronise() const {
        // A constant each, so that ptxas reserves no more barriers than there are.
        if (warpgroup_ == 0) {
            named_barrier_synchronise(key_warpgroup_0, warpgroup_size);
        } else {
            named_barrier_synchronise(key_warpgroup_1, warpgroup_size);
        }
    }

    /// One arrival a warp.
    __device__ __forceinline__ void release(uint32_t barrier) {
        __syncwarp();
        if (lane_ == 0) {
            mbarrier_arrive(barrier);
        }
    }

    /// dV leaves over V, of which a warpgroup reads only the rows that it writes. K is left alone:
    /// the query warpgroup still needs it, and the next K may come as soon as it does not.
    __device__ __forceinline__ void store_gradients(const Tile& tile) {
        const int buffer = kv_ring_.slot;
        release(shared_.k_empty(buffer));
        // The dK before has been read long since.
        wait_for_stores();
        stage(state_.d_v, 1.0F, shared_.v(buffer));
        if constexpr (d_k_has_place) {
            stage(state_.d_k, arguments_.softmax_scale, shared_.d_k(buffer));
            publish();
            store(shared_.v(buffer), arguments_.d_v, tile);
        } else {
            publish();
            store(shared_.v(buffer), arguments_.d_v, tile);
            wait_for_stores();
            stage(state_.d_k, arguments_.softmax_scale, shared_.d_k(buffer));
            publish();
        }
        store(shared_.d_k(buffer), arguments_.d_k, tile);
        if (is_store_thread()) {
            bulk_wait_read<d_k_has_place ? 1 : 0>();
            mbarrier_arrive(shared_.v_empty(buffer));
        }
    }

    /// The thread that lets TMA bring this warpgroup's gradients out.
    __device__ __forceinline__ bool is_store_thread() const {
        return warp() == 0 && lane_ == 0;
    }

    /// What TMA has been told to store has left shared memory.
    __device__ __forceinline__ void wait_for_stores() const {
        if (is_store_thread()) {
            bulk_wait_read<0>();
        }
        synchronise();
    }

    /// What the warpgroup has staged is TMA's to read.
    __device__ __forceinline__ void publish() const {
        fence_shared_before_async_proxy();
        synchronise();
    }

    __device__ __forceinline__ void stage(const AccumulatorRegister (&gradient)[gradient_registers],
                                          float scale, uint32_t staged) {
        const uint32_t address = KvTile{staged}.address(
            warpgroup_ * keys_per_warpgroup + warp() * 16 + lane_ % 16, lane_ / 16 * 8);
#pragma unroll
        for (int slice = 0; slice < depth_slices; ++slice) {
            OperandRegister rounded[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int j = 8 * slice + 2 * i;
                rounded[i] = pack<Element>(gradient[j] * scale, gradient[j + 1] * scale);
            }
            stmatrix_x4(KvTile::moved(address, 0, slice * 16), rounded);
        }
    }

    __device__ __forceinline__ void store(uint32_t staged, const TensorMap& map,
                                          const Tile& tile) const {
        if (is_store_thread()) {
            const int first_key = warpgroup_ * keys_per_warpgroup;
#pragma unroll
            for (int panel = 0; panel < KvTile::panels; ++panel) {
                tma_store_4d(&map, panel * KvTile::panel_columns, tile.kv_start + first_key,
                             tile.head, tile.batch,
                             staged + panel * KvTile::panel_bytes + first_key * KvTile::row_bytes);
            }
            bulk_commit();
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int warpgroup_;
    int lane_;
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<stages> query_ring_;
    RingPosition<d_s_buffers> d_s_ring_;
    KeyState state_;
};

// --- The query warpgroup ------------------------------------------------------------------------

/// How one thread adds the block's part of dQ to the accumulator. The head's first block stores and
/// tells the others how far it has come, so that nobody need have zeroed the accumulator; its
/// ticket is so much lower than theirs that they seldom wait.
class DqSum {
  public:
    __device__ __forceinline__ DqSum(const WgmmaArguments& arguments, const Tile& tile)
        : counters_(arguments.counters),
          batch_head_(tile.batch_head),
          place_(arguments.d_q_accumulator + (static_cast<int64_t>(tile.batch_head) + 1) *
                                                 query_tiles_of(arguments) * tile_elements),
          stores_(tile.kv_start == 0) {}

    /// Sends a part, staged in shared memory, on its way. Parts of a tile come one after another,
    /// tiles from the last to the first.
    __device__ __forceinline__ void add(int part, uint32_t staged) {
        if (part == 0) {
            place_ -= tile_elements;
            ++tiles_;
            if (!stores_ && stored_ < tiles_) {
                stored_ = wait_for_global_counter<64>(counters_.tiles_stored + batch_head_, tiles_);
                // What the first block has stored comes before what is added.
                fence_global_before_async_proxy();
            }
        }
        float* const place = place_ + part * (block_q * d_q_part_columns);
        if (stores_) {
            bulk_store(place, staged, d_q_part_bytes);
            bulk_commit();
            if (part == d_q_parts - 1 && tiles_ > 1) {
                // The tile before this one has arrived by now, or soon.
                bulk_wait<d_q_parts>();
                count_global(counters_.tiles_stored + batch_head_);
            }
        } else {
            bulk_reduce_add<float>(place, staged, d_q_part_bytes);
            bulk_commit();
        }
    }

    __device__ __forceinline__ void finish() {
        bulk_wait<0>();
        if (stores_) {
            count_global(counters_.tiles_stored + batch_head_);
        }
        count_global(counters_.blocks_done + batch_head_);
    }

  private:
    static constexpr int tile_elements = block_q * head_dim;

    const WgmmaCounters& counters_;
    int batch_head_;
    float* place_;  // of the tile that was last begun
    uint32_t tiles_ = 0;
    uint32_t stored_ = 0;  // tiles of the head, as last seen
    bool stores_;
};

/// dQ of the block's keys, part by part: a part is 64 queries by 64 columns, in the order in which
/// the threads hold it (see convert_d_q).
class QueryWarpgroup {
  public:
    __device__ __forceinline__ QueryWarpgroup(const WgmmaArguments& arguments, SharedMemory shared,
                                              int thread)
        : arguments_(arguments), shared_(shared), thread_(thread), lane_(thread % warp_size) {}

    __device__ __forceinline__ void work() {
        PostedWork posted(shared_);
        for (Work work = posted.next(lane_); !work.is_end(); work = posted.next(lane_)) {
            if (work.has_tile()) {
                work_on(work.tile);
            }
        }
    }

  private:
    __device__ __forceinline__ void work_on(const Tile& tile) {
        const int kv_buffer = kv_ring_.slot;
        mbarrier_wait(shared_.k_full(kv_buffer), kv_ring_.parity);
        kv_ring_.advance();
        DqSum sum(arguments_, tile);
        const int first = tile.first_query_tile();
        for (int query_tile = query_tiles_of(arguments_) - 1; query_tile >= first; --query_tile) {
            mbarrier_wait(shared_.d_s_full(d_s_ring_.slot), d_s_ring_.parity);
#pragma unroll
            for (int part = 0; part < d_q_parts; ++part) {
                AccumulatorRegister d_q[d_q_part_columns / 2];
                const uint32_t k_panel = shared_.k(kv_buffer) + part * KvTile::panel_bytes;
                if (causal && query_tile == first) {
                    // The second key warpgroup has left out this tile.
                    multiply<key_slices / key_warpgroups>(d_q, shared_.d_s(d_s_ring_.slot),
                                                          k_panel);
                } else {
                    multiply<key_slices>(d_q, shared_.d_s(d_s_ring_.slot), k_panel);
                }
                // The buffer's last way out has begun two parts ago.
                if (thread_ == 0) {
                    bulk_wait_read<d_q_buffers - 1>();
                }
                wgmma_wait<0>();
                wgmma_settle(d_q);
                if (part == d_q_parts - 1) {
                    __syncwarp();
                    if (lane_ == 0) {
                        mbarrier_arrive(shared_.d_s_empty(d_s_ring_.slot));
                    }
                }
                named_barrier_synchronise(query_warpgroup_own, warpgroup_size);
                const uint32_t staged = shared_.d_q(d_q_buffer_);
#pragma unroll
                for (int i = 0; i < d_q_part_columns / 2; i += 4) {
                    store_shared(staged + i / 4 * (warpgroup_size * 16) + thread_ * 16,
                                 float4{d_q[i], d_q[i + 1], d_q[i + 2], d_q[i + 3]});
                }
                fence_shared_before_async_proxy();
                named_barrier_synchronise(query_warpgroup_own, warpgroup_size);
                if (thread_ == 0) {
                    sum.add(part, staged);
                }
                d_q_buffer_ ^= 1;
            }
            d_s_ring_.advance();
        }
        __syncwarp();
        if (lane_ == 0) {
            mbarrier_arrive(shared_.k_empty(kv_buffer));
        }
        if (thread_ == 0) {
            sum.finish();
        }
    }

    /// d_q = dS · K, of the first keys and the 64 columns of K that lie in the panel.
    template <int slices>
    __device__ __forceinline__ static void multiply(
        AccumulatorRegister (&d_q)[d_q_part_columns / 2], uint32_t d_s_tile, uint32_t k_panel) {
        constexpr MatrixLayout d_s_layout =
            mn_major_layout(MatrixSwizzle::bytes_128, ScoreTile::panel_bytes);
        constexpr MatrixLayout k_layout =
            mn_major_layout(MatrixSwizzle::bytes_128, KvTile::panel_bytes);
        constexpr int step_bytes = mn_major_step(MatrixSwizzle::bytes_128);
        const MatrixDescriptor d_s(d_s_tile, d_s_layout);
        // Not held across steps, for want of registers.
        const MatrixDescriptor k(opaque(k_panel), k_layout);
        wgmma_fence();
#pragma unroll
        for (int slice = 0; slice < slices; ++slice) {
            wgmma_m64k16<Element, d_q_part_columns, Major::mn, Major::mn>(
                d_q, d_s.advanced(slice * step_bytes), k.advanced(slice * step_bytes), slice > 0);
        }
        wgmma_commit();
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int thread_;
    int lane_;
    RingPosition<kv_buffers> kv_ring_;
    RingPosition<d_s_buffers> d_s_ring_;
    int d_q_buffer_ = 0;
};

// --- Conversion of dQ ---------------------------------------------------------------------------

/// dQ = softmax_scale · accumulator, rounded and stored, of query tiles of heads whose key tiles
/// have all been worked on. Three warps that have nothing else to do. A part comes in two halves of
/// 32 columns, as they lie, the next halves on their way meanwhile, and leaves as rows.
class Converter {
  public:
    __device__ __forceinline__ Converter(const WgmmaArguments& arguments, SharedMemory shared,
                                         int thread)
        : arguments_(arguments),
          shared_(shared),
          warp_(thread / warp_size),
          lane_(thread % warp_size) {}

    __device__ __forceinline__ void work() {
        PostedWork posted(shared_);
        for (Work work = posted.next(lane_); !work.is_end(); work = posted.next(lane_)) {
            if (work.has_conversion()) {
                convert(work.conversion);
            }
        }
        if (leads()) {
            bulk_wait<0>();
        }
    }

  private:
    static constexpr int half_bytes = d_q_part_bytes / 2;
    static constexpr int half_columns = d_q_part_columns / 2;

    __device__ __forceinline__ bool leads() const { return warp_ == 0 && lane_ == 0; }

    __device__ __forceinline__ void synchronise() const {
        named_barrier_synchronise(conversion_warps_own, conversion_threads);
    }

    /// By the leading thread.
    __device__ __forceinline__ void load(const float* source, int half) {
        const int buffer = half % 2;
        mbarrier_arrive_expect_bytes(shared_.conversion_full(buffer), half_bytes);
        bulk_load(shared_.unconverted() + buffer * half_bytes, source + half * (half_bytes / 4),
                  half_bytes, shared_.conversion_full(buffer));
    }

    __device__ __forceinline__ void convert(const Conversion& conversion) {
        const float* source =
            arguments_.d_q_accumulator +
            (static_cast<int64_t>(conversion.batch_head) * query_tiles_of(arguments_) +
             conversion.first_query_tile) *
                (block_q * head_dim);
        const int halves = conversion.query_tiles * d_q_parts * 2;
        if (leads()) {
            wait_for_global_counter<256>(arguments_.counters.blocks_done + conversion.batch_head,
                                         static_cast<uint32_t>(kv_tiles_of(arguments_)));
            fence_global_before_async_proxy();
            for (int half = 0; half < 2 && half < halves; ++half) {
                load(source, half);
            }
        }
        for (int half = 0; half < halves; ++half) {
            if (half % 2 == 0) {
                if (leads()) {
                    bulk_wait_read<0>();  // the part before has left
                }
                synchronise();
            }
            mbarrier_wait(shared_.conversion_full(half % 2), parity_);
            convert_half(half % 2);
            fence_shared_before_async_proxy();
            synchronise();
            if (half % 2 == 1) {
                parity_ ^= 1;
            }
            if (leads()) {
                if (half + 2 < halves) {
                    load(source, half + 2);
                }
                if (half % 2 == 1) {
                    const int part = half / 2;
                    tma_store_4d(&arguments_.d_q, part % d_q_parts * d_q_part_columns,
                                 (conversion.first_query_tile + part / d_q_parts) * block_q,
                                 conversion.batch_head % arguments_.heads,
                                 conversion.batch_head / arguments_.heads, shared_.converted());
                    bulk_commit();
                }
            }
        }
    }

    __device__ __forceinline__ void convert_half(int half) {
        const SwizzledTile<block_q, d_q_part_columns> rows{shared_.converted()};
        const float scale = arguments_.softmax_scale;
        // A fragment: 16 rows, those of one warp of the query warpgroup, by 16 columns.
        constexpr int fragments = block_q / 16 * (half_columns / 16);
#pragma unroll 1
        for (int fragment = warp_; fragment < fragments;
             fragment += conversion_threads / warp_size) {
            const int row = fragment % (block_q / 16) * 16;
            const int column = fragment / (block_q / 16) * 16;
            const uint32_t place = shared_.unconverted() + half * half_bytes +
                                   column / 8 * (warpgroup_size * 16) + (row * 2 + lane_) * 16;
            const float4 left = load_shared<float4>(place);
            const float4 right = load_shared<float4>(place + warpgroup_size * 16);
            const OperandRegister packed[4] = {pack<Element>(left.x * scale, left.y * scale),
                                               pack<Element>(left.z * scale, left.w * scale),
                                               pack<Element>(right.x * scale, right.y * scale),
                                               pack<Element>(right.z * scale, right.w * scale)};
            stmatrix_x4(
                rows.address(row + lane_ % 16, half * half_columns + column + lane_ / 16 * 8),
                packed);
        }
    }

    const WgmmaArguments& arguments_;
    SharedMemory shared_;
    int warp_;
    int lane_;
    int parity_ = 0;
};

// --- The kernel ---------------------------------------------------------------------------------

extern "C" __global__ void __launch_bounds__(threads, 1)
    attention_backward_wgmma(const __grid_constant__ WgmmaArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const SharedMemory shared{shared_address(shared_memory)};
    const int thread = static_cast<int>(threadIdx.x);
    // The same in all lanes, which the compiler cannot know.
    const int warpgroup = __shfl_sync(0xffffffffu, thread / warpgroup_size, 0);
    const int thread_in_warpgroup = thread % warpgroup_size;

    if (thread == 0) {
        for (int buffer = 0; buffer < kv_buffers; ++buffer) {
            mbarrier_initialise(shared.k_full(buffer), 1);
            mbarrier_initialise(shared.k_empty(buffer), key_warps + warps_per_warpgroup);
            mbarrier_initialise(shared.v_full(buffer), 1);
            mbarrier_initialise(shared.v_empty(buffer), key_warpgroups);
        }
        for (int stage = 0; stage < stages; ++stage) {
            mbarrier_initialise(shared.q_full(stage), 1);
            mbarrier_initialise(shared.q_empty(stage), key_warps);
            mbarrier_initialise(shared.d_o_full(stage), 1);
            mbarrier_initialise(shared.d_o_empty(stage), key_warps);
        }
        for (int buffer = 0; buffer < d_s_buffers; ++buffer) {
            mbarrier_initialise(shared.d_s_full(buffer), key_warps);
            mbarrier_initialise(shared.d_s_empty(buffer), warps_per_warpgroup);
        }
        for (int slot = 0; slot < work_slots; ++slot) {
            mbarrier_initialise(shared.work_full(slot), 1);
            mbarrier_initialise(shared.work_empty(slot), threads / warp_size - 1);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_initialise(shared.conversion_full(buffer), 1);
        }
        mbarrier_initialisation_fence();
    }
    __syncthreads();

    if (warpgroup == loader_warpgroup) {
        decrease_registers<loader_registers>();
        if (thread_in_warpgroup == 0) {
            Loader(arguments, shared).work();
        } else if (thread_in_warpgroup >= warp_size) {
            Converter(arguments, shared, thread_in_warpgroup - warp_size).work();
        }
    } else if (warpgroup == query_warpgroup) {
        decrease_registers<query_registers>();
        QueryWarpgroup(arguments, shared, thread_in_warpgroup).work();
    } else {
        increase_registers<key_registers>();
        KeyWarpgroup(arguments, shared, warpgroup, thread_in_warpgroup).work();
    }
}

}  // namespace backlight::kernel
