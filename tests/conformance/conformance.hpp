#pragma once

#include "backlight/runtime.hpp"

// What the primitives of kernel_sources/primitives do, tested by small kernels whose results a
// plain computation on the host predicts exactly. Each function runs on whatever device the Runtime
// is over, its default stream, and fails the doctest case that calls it.

namespace backlight::conformance {

// Matrix instructions.
void check_matrix_round_trips(Runtime& runtime);
void check_mma(Runtime& runtime);
void check_wgmma(Runtime& runtime);
void check_wgmma_fp16(Runtime& runtime);
void check_wgmma_groups(Runtime& runtime);

// Tensor copies.
void check_tensor_loads(Runtime& runtime);
void check_tensor_loads_of_narrow_boxes(Runtime& runtime);
void check_tensor_stores(Runtime& runtime);
void check_tensor_reductions(Runtime& runtime);

// Other asynchronous copies.
void check_bulk_copies(Runtime& runtime);
void check_bulk_relay(Runtime& runtime);
void check_async_copies(Runtime& runtime);

// Barriers and warps.
void check_named_barriers(Runtime& runtime);
void check_pipeline(Runtime& runtime);
void check_warp_specialisation(Runtime& runtime);
void check_warp_collectives(Runtime& runtime);

// Numbers.
void check_global_reductions(Runtime& runtime);
void check_global_counters(Runtime& runtime);
void check_conversions(Runtime& runtime);

}  // namespace backlight::conformance
