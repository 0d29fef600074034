// What problems may ask for beyond whole tiles: a specialisation declares what its problem needs,
// and kernels leave out the rest.
#pragma once

#include "specialisation.cuh"

namespace backlight::kernel::specialisation {

// What a specialisation declares itself is found before these.
namespace unless_declared {
/// seqlen_q is no multiple of block_q: rows of the workspace are padded to whole query tiles.
constexpr bool partial_query_tiles = false;
/// seqlen_kv is no multiple of block_kv: the last key tile is masked.
constexpr bool partial_key_tiles = false;
/// Keys after the mask's last diagonal are hidden; those before its first one too. The causal mask
/// over equal lengths of whole tiles has a constant of its own, `causal`.
constexpr bool bounded_last_diagonal = false;
constexpr bool bounded_first_diagonal = false;
/// Several heads of queries use one of keys and values.
constexpr bool grouped_heads = false;
/// dQ, dK and dV are fp32 rather than of the type of the inputs.
constexpr bool fp32_gradients = false;
/// They are added to what is there.
constexpr bool accumulates_gradients = false;
/// Columns that Q and K have, and V and O, of the head_dim that tiles have; 0: all. TMA fills the
/// others with zeros.
constexpr int head_dim_qk = 0;
constexpr int head_dim_v = 0;
/// The parts of dQ are added in one order: see attention_backward_rounds/turns.cuh.
constexpr bool deterministic = false;
/// Columns of the tiles of V and O, where they are not head_dim; 0: head_dim.
constexpr int tile_head_dim_v = 0;
/// Sequences lie one after another in the tensors (arguments/packing.h). Masks go by the lengths of
/// each: diagonals are counted from its own, which is that of the last query and the last key, or
/// of the first ones.
constexpr bool packed = false;
constexpr bool mask_from_end = false;
/// Rows of the main kernel's tiles, for the kernels around it where sequences are packed.
constexpr int query_tile_rows = 1;
constexpr int key_tile_rows = 1;
}  // namespace unless_declared
using namespace unless_declared;

}  // namespace backlight::kernel::specialisation

namespace backlight::kernel {

constexpr int columns_qk =
    specialisation::head_dim_qk != 0 ? specialisation::head_dim_qk : specialisation::head_dim;
constexpr int tile_columns_v = specialisation::tile_head_dim_v != 0
                                   ? specialisation::tile_head_dim_v
                                   : specialisation::head_dim;
constexpr int columns_v =
    specialisation::head_dim_v != 0 ? specialisation::head_dim_v : tile_columns_v;

template <bool fp32>
struct GradientType {
    using Type = specialisation::Element;
};
template <>
struct GradientType<true> {
    using Type = float;
};
/// Of dQ, dK and dV.
using Gradient = GradientType<specialisation::fp32_gradients>::Type;

static_assert(specialisation::fp32_gradients || !specialisation::accumulates_gradients,
              "sums of rounded gradients would lose what is added");

}  // namespace backlight::kernel
