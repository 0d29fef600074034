// What TMA brings for the register-resident mma kernel. All of it is asked for by one thread.
#pragma once

#include "arguments/attention_backward_mma_resident.h"
#include "attention_backward_mma_resident/constants.cuh"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/sequence.cuh"
#include "attention_backward_rounds/work.cuh"
#include "primitives/bulk_copy.cuh"
#include "primitives/dependent_launch.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/tensor_map.cuh"
#include "primitives/tma.cuh"

namespace backlight::kernel {

/// `Shared` tells where tiles go, and what they are.
template <typename Shared>
class Loader {
    using KTile = typename Shared::KTile;
    using VTile = typename Shared::VTile;
    using QTile = typename Shared::QTile;
    using DOTile = typename Shared::DOTile;

  public:
    __device__ __forceinline__ Loader(const MmaResidentArguments& arguments, Shared shared,
                                      const Tile& key_tile)
        : arguments_(arguments), shared_(shared), key_tile_(key_tile) {}

    /// Where sequences are packed, by all lanes of the warp that is to load.
    __device__ __forceinline__ void acquire_maps() const {
        if constexpr (packed) {
            // An operand without rows has no map, but its place may be acquired.
#pragma unroll
            for (int operand = 0; operand < packed_inputs; ++operand) {
                acquire_tensor_map(&map_of(arguments_.q, static_cast<PackedOperandIndex>(operand)));
            }
        }
    }

    /// K, V and the first query tile. Q, K, V and dO are the caller's: they may be read before the
    /// delta kernel, from which LSE and delta come, has ended.
    __device__ __forceinline__ void load_first() const {
        mbarrier_arrive_expect_bytes(shared_.kv_full(), KTile::bytes + VTile::bytes);
        load_rows<KTile>(shared_.k(), map_of(arguments_.k, packed_k), key_tile_.head,
                         key_tile_.kv_start, shared_.kv_full());
        load_rows<VTile>(shared_.v(), map_of(arguments_.v, packed_v), key_tile_.head,
                         key_tile_.kv_start, shared_.kv_full());
        const int query_start = first_query_of(arguments_, key_tile_);
        load_q(0, 0, query_start);
        load_d_o(0, 0, query_start);
        wait_for_previous_kernel();
        load_lse(0, 0, query_start);
        load_delta(0, 0, query_start);
    }

    /// Query tile `tile`, counted from the first, whose places nobody reads any more; of that head
    /// of the key tile's group.
    __device__ __forceinline__ void load(int tile, int head_in_group, int query_start) const {
        load_q_and_lse(tile, head_in_group, query_start);
        load_d_o_and_delta(tile, head_in_group, query_start);
    }
    /// A half of it.
    __device__ __forceinline__ void load_q_and_lse(int tile, int head_in_group,
                                                   int query_start) const {
        load_q(tile, head_in_group, query_start);
        load_lse(tile, head_in_group, query_start);
    }
    __device__ __forceinline__ void load_d_o_and_delta(int tile, int head_in_group,
                                                       int query_start) const {
        load_d_o(tile, head_in_group, query_start);
        load_delta(tile, head_in_group, query_start);
    }

  private:
    static constexpr int statistics_bytes = block_q * 4;

    /// The map of an operand: the tile's own sequence's where sequences are packed.
    __device__ __forceinline__ const TensorMap& map_of(const TensorMap& whole,
                                                       PackedOperandIndex operand) const {
        if constexpr (packed) {
            return arguments_.packed.maps[key_tile_.batch * packed_operands + operand];
        } else {
            return whole;
        }
    }

    /// Copies `SharedTile::panels` panels, from row `row` of the head's matrix on.
    template <typename SharedTile>
    __device__ __forceinline__ void load_rows(uint32_t destination, const TensorMap& map, int head,
                                              int row, uint32_t barrier) const {
#pragma unroll
        for (int panel = 0; panel < SharedTile::panels; ++panel) {
            tma_load_4d(destination + panel * SharedTile::panel_bytes, &map,
                        panel * SharedTile::panel_columns, row, head, packed ? 0 : key_tile_.batch,
                        barrier);
        }
    }

    __device__ __forceinline__ void load_q(int tile, int head_in_group, int query_start) const {
        const uint32_t barrier = shared_.q_full(tile);
        mbarrier_arrive_expect_bytes(barrier, QTile::bytes + statistics_bytes);
        load_rows<QTile>(shared_.q(tile), map_of(arguments_.q, packed_q), query_head(head_in_group),
                         query_start, barrier);
    }
    __device__ __forceinline__ void load_d_o(int tile, int head_in_group, int query_start) const {
        const uint32_t barrier = shared_.d_o_full(tile);
        mbarrier_arrive_expect_bytes(barrier, DOTile::bytes + statistics_bytes);
        load_rows<DOTile>(shared_.d_o(tile), map_of(arguments_.d_o, packed_d_o),
                          query_head(head_in_group), query_start, barrier);
    }

    __device__ __forceinline__ void load_lse(int tile, int head_in_group, int query_start) const {
        bulk_load(shared_.lse(),
                  arguments_.negated_lse_log2 + first_row(head_in_group) + query_start,
                  statistics_bytes, shared_.q_full(tile));
    }
    __device__ __forceinline__ void load_delta(int tile, int head_in_group, int query_start) const {
        bulk_load(shared_.delta(),
                  arguments_.negated_delta + first_row(head_in_group) + query_start,
                  statistics_bytes, shared_.d_o_full(tile));
    }

    __device__ __forceinline__ int query_head(int head_in_group) const {
        return key_tile_.head * heads_per_kv_head_of(arguments_) + head_in_group;
    }
    /// Of the head's statistics.
    __device__ __forceinline__ int64_t first_row(int head_in_group) const {
        if constexpr (packed) {
            return first_row_of(arguments_, key_tile_) +
                   static_cast<int64_t>(head_in_group) * padded_seqlen_q_of(arguments_, key_tile_);
        } else {
            const int64_t head =
                static_cast<int64_t>(key_tile_.batch_head) * heads_per_kv_head_of(arguments_) +
                head_in_group;
            return head * padded_seqlen_q_of(arguments_);
        }
    }

    const MmaResidentArguments& arguments_;
    Shared shared_;
    Tile key_tile_;
};

}  // namespace backlight::kernel
