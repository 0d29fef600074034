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
}  // namespace unless_declared
using namespace unless_declared;

}  // namespace backlight::kernel::specialisation
