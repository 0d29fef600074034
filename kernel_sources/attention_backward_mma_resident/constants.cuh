// What the parts of the register-resident mma kernels call the constants of their specialisation.
#pragma once

#include "problem_options.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using specialisation::block_kv;
using specialisation::block_q;
using specialisation::bounded_first_diagonal;
using specialisation::bounded_last_diagonal;
using specialisation::causal;
using specialisation::converts_d_q;
using specialisation::deterministic;
using specialisation::grouped_heads;
using specialisation::head_dim;
using specialisation::packed;
using specialisation::partial_key_tiles;
using specialisation::partial_query_tiles;
using Element = specialisation::Element;

// A block may wait for others only where tickets tell which have begun.
constexpr bool takes_tickets = converts_d_q || deterministic;

}  // namespace backlight::kernel
