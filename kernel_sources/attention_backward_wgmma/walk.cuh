// Which query tiles a block of the wgmma kernel visits with a tile of keys, and what a key
// warpgroup is told of each.
#pragma once

#include "arguments/attention_backward.h"
#include "attention_backward_rounds/mask.cuh"
#include "attention_backward_rounds/work.cuh"
#include "attention_backward_wgmma/layout.cuh"
#include "primitives/scheduling.cuh"
#include "primitives/shared_memory.cuh"

namespace backlight::kernel {

// What roles hold of a ticket. Where sequences are packed, that lies in shared memory until the
// work is done, and they hold where.

template <bool packed>
struct Held {
    using Tile = kernel::Tile;
    using Conversion = kernel::Conversion;
    using Work = kernel::Work;
};
template <>
struct Held<true> {
    struct Tile : kernel::Tile {
        uint32_t place;

        __device__ __forceinline__ Tile() {}
        __device__ __forceinline__ Tile(const kernel::Tile& tile) : kernel::Tile(tile) {}
        __device__ __forceinline__ Tile(int batch, int head, int batch_head, int kv_start)
            : kernel::Tile{batch, head, batch_head, kv_start} {}
    };
    struct Conversion : kernel::Conversion {
        uint32_t place;

        __device__ __forceinline__ Conversion() {}
        __device__ __forceinline__ Conversion(int batch_head, int first_query_tile, int query_tiles)
            : kernel::Conversion{batch_head, first_query_tile, query_tiles} {}
    };
    struct Work {
        Tile tile;
        Conversion conversion;

        __device__ __forceinline__ bool has_tile() const { return tile.batch_head >= 0; }
        __device__ __forceinline__ bool has_conversion() const {
            return conversion.batch_head >= 0;
        }
        __device__ __forceinline__ bool is_end() const {
            return tile.batch_head == kernel::Work::end;
        }
    };
};
using HeldTile = Held<packed>::Tile;
using HeldConversion = Held<packed>::Conversion;
using HeldWork = Held<packed>::Work;

/// Where the rest is, 16 bytes; of packed sequences alone.
template <typename Part>
__device__ __forceinline__ uint32_t place_of(const Part& part) {
    return part.place;
}
template <typename Part>
__device__ __forceinline__ void set_place(Part& part, uint32_t place) {
    part.place = place;
}

/// A tile, or a conversion, of a packed sequence with what its place in shared memory says of it;
/// else the same. Roles that are short of registers hold the place alone.
__device__ __forceinline__ HeldTile with_rows(const HeldTile& tile) {
    HeldTile result = tile;
    if constexpr (packed) {
        const uint4 rows = load_shared<uint4>(place_of(tile));
        result.seqlen_q = static_cast<int>(rows.x);
        result.seqlen_kv = static_cast<int>(rows.y);
        result.first_row = static_cast<int>(rows.z);
        result.kv_begin = static_cast<int>(rows.w);
    }
    return result;
}

/// The same tile, of which nothing that is worked out in a step is held across steps: roles that
/// walk are short of registers.
__device__ __forceinline__ HeldTile in_step(const HeldTile& tile) {
    HeldTile result = with_rows(tile);
    if constexpr (posts_steps) {
        result.kv_start = static_cast<int>(opaque(static_cast<uint32_t>(tile.kv_start)));
    }
    return result;
}

// A key tile's steps count down. Where steps are posted they are all query tiles of all heads of
// the group that see any of its keys; else the step of a query tile has its number, or where it
// walks up that of the tile as far from the other end. What follows is the one place that knows
// their order, which the loader and the query warpgroup ask; key warpgroups, which have no
// registers for that, are told (see Step), or count along.

/// A query tile of one of the heads that use the key tile.
struct Visit {
    int query_tile;
    int head_in_group;

    __device__ __forceinline__ int query_start() const { return query_tile * block_q; }
};

/// Query tiles of a head that see any of the tile's keys.
__device__ __forceinline__ int visited_tiles_of(const WgmmaArguments& arguments,
                                                const HeldTile& tile) {
    const int first = first_query_of(arguments, tile) / block_q;
    return (queries_end_of(arguments, tile) + block_q - 1) / block_q - first;
}

__device__ __forceinline__ int first_step_of(const WgmmaArguments& arguments,
                                             const HeldTile& tile) {
    if constexpr (packed) {
        // Queries without keys are many, and see none.
        if (is_unseen(arguments, tile)) {
            return -1;
        }
    }
    return (posts_steps ? visited_tiles_of(arguments, tile) * heads_per_kv_head_of(arguments)
                        : query_tiles_of(arguments)) -
           1;
}
/// It lies behind the first where no query sees the tile.
__device__ __forceinline__ int last_step_of(const HeldTile& tile) {
    if constexpr (posts_steps) {
        return 0;
    } else {
        return tile.first_query_tile();
    }
}

/// From the last query tile to the first, or the other way; each of all heads of the group before
/// the next: blocks with keys of the same head go side by side then, whatever their masks leave
/// out, and meet the same queries and parts of dQ in the L2 cache.
__device__ __forceinline__ Visit visit_of(const WgmmaArguments& arguments, const HeldTile& tile,
                                          int step) {
    if constexpr (!posts_steps) {
        return {walks_up ? tile.first_query_tile() + query_tiles_of(arguments) - 1 - step : step,
                0};
    } else {
        const int first = first_query_of(arguments, tile) / block_q;
        const int last = (queries_end_of(arguments, tile) - 1) / block_q;
        if constexpr (!grouped_heads) {
            return {walks_up ? last - step : first + step, 0};
        } else {
            const int heads = heads_per_kv_head_of(arguments);
            const int tiles_before =
                static_cast<int>(static_cast<uint32_t>(step) / static_cast<uint32_t>(heads));
            return {walks_up ? last - tiles_before : first + tiles_before,
                    step - tiles_before * heads};
        }
    }
}

/// A bit a key warpgroup: those of which the query tile sees any key.
__device__ __forceinline__ uint32_t seen_warpgroups(const WgmmaArguments& arguments,
                                                    const HeldTile& tile, int query_start) {
    uint32_t seen = 0;
#pragma unroll
    for (int warpgroup = 0; warpgroup < key_warpgroups; ++warpgroup) {
        const int first_key = tile.kv_start + warpgroup * keys_per_warpgroup;
        if (is_seen<keys_per_warpgroup>(arguments, tile, first_key, query_start)) {
            seen |= 1u << warpgroup;
        }
    }
    return seen;
}

/// What a key warpgroup does with a query tile. The loader leaves it beside the tile.
class Step {
  public:
    __device__ __forceinline__ Step() : word_(0) {}
    /// Before the first, of which there may be none.
    __device__ __forceinline__ static Step none(bool is_last) {
        return Step(is_last ? last_bit : 0);
    }
    __device__ __forceinline__ explicit Step(uint32_t word) : word_(word) {}

    __device__ __forceinline__ static Step of(const WgmmaArguments& arguments, const HeldTile& tile,
                                              int step, int query_start) {
        uint32_t word = seen_warpgroups(arguments, tile, query_start);
        if constexpr (has_edges) {
#pragma unroll
            for (int warpgroup = 0; warpgroup < key_warpgroups; ++warpgroup) {
                const int first_key = tile.kv_start + warpgroup * keys_per_warpgroup;
                if (is_edge<keys_per_warpgroup>(arguments, tile, first_key, query_start)) {
                    word |= edge_bit << warpgroup;
                }
            }
        }
        if (step == last_step_of(tile)) {
            word |= last_bit;
        } else {
            const HeldTile again = in_step(tile);
            const Visit next = visit_of(arguments, again, step - 1);
            word |= next_seen_bit * seen_warpgroups(arguments, again, next.query_start());
        }
        return Step(word);
    }

    /// Any of the warpgroup's keys is seen.
    __device__ __forceinline__ bool is_seen_by(int warpgroup) const {
        return (word_ >> warpgroup & 1) != 0;
    }
    /// Some of the scores are none.
    __device__ __forceinline__ bool is_edge_of(int warpgroup) const {
        return (word_ >> warpgroup & edge_bit) != 0;
    }
    /// Another step follows in which any of the warpgroup's keys is seen.
    __device__ __forceinline__ bool goes_on(int warpgroup) const {
        return (word_ >> warpgroup & next_seen_bit) != 0;
    }
    /// No step of the key tile follows.
    __device__ __forceinline__ bool is_last() const {
        return (word_ & last_bit) != 0;
    }

    /// With what there is of the scores, from the tiles' first key and query on.
    __device__ __forceinline__ void store(uint32_t place, const EdgeScores& scores) const {
        const int after = bounded_first_diagonal ? scores.after_first : scores.after_last;
        store_shared(place, uint4{word_, static_cast<uint32_t>(scores.keys_left),
                                  static_cast<uint32_t>(after), scores.diagonals});
    }
    /// By a whole warp, of which the compiler cannot know that all lanes load the same.
    __device__ __forceinline__ static Step load(uint32_t place) {
        return Step(__shfl_sync(0xffffffffu, load_shared<uint32_t>(place), 0));
    }
    __device__ __forceinline__ static EdgeScores load_scores(uint32_t place) {
        const uint4 words = load_shared<uint4>(place);
        EdgeScores scores;
        scores.keys_left = static_cast<int>(words.y);
        scores.after_last = scores.after_first = static_cast<int>(words.z);
        scores.diagonals = words.w;
        return scores;
    }

  private:
    static_assert(key_warpgroups == 2, "two bits a question");
    static constexpr uint32_t edge_bit = 1u << 2;
    static constexpr uint32_t next_seen_bit = 1u << 4;
    static constexpr uint32_t last_bit = 1u << 6;

    uint32_t word_;
};

}  // namespace backlight::kernel
