#pragma once

#include <cstddef>
#include <cstdint>

#include "backlight/runtime.hpp"

// The C functions by which bench_peers.py reaches the library. A function that fails returns null
// or non-zero, and `backlight_peers_error` of the same thread says why. Whatever is opened or
// planned is closed by its caller.

#define BACKLIGHT_PEERS_API __attribute__((visibility("default")))

namespace backlight::peers {

struct Session;
struct Plan;

/// A device pointer; strides in elements.
struct Tensor {
    void* data;
    std::int64_t stride_batch, stride_head, stride_seqlen;
};

/// Shapes are those of the plan's problem. Inputs are only read.
struct Tensors {
    Tensor q, k, v, o, d_o, d_q, d_k, d_v;
    const float* lse;
    std::int64_t lse_stride_batch, lse_stride_head;
    /// Device memory: where packed sequences begin, and where the last ends; null where they are
    /// not packed.
    const std::int32_t* cu_seqlens;
};

}  // namespace backlight::peers

extern "C" {

/// Of the last call of this thread that failed; valid until the next.
BACKLIGHT_PEERS_API const char* backlight_peers_error();

/// `device`: the number of a CUDA device, whose primary context is made current in the calling
/// thread, or "emulated".
BACKLIGHT_PEERS_API backlight::peers::Session* backlight_peers_open(const char* device);
BACKLIGHT_PEERS_API void backlight_peers_close(backlight::peers::Session* session);

/// JSON of card, driver, NVRTC and git revision, as `bench` writes it; valid until the session is
/// closed. Refused of the emulated device.
BACKLIGHT_PEERS_API const char* backlight_peers_environment(backlight::peers::Session* session);

/// Clock (MHz) and power (W) at this moment; NaN where the driver does not tell.
BACKLIGHT_PEERS_API int backlight_peers_clocks(backlight::peers::Session* session, double* sm_clock,
                                               double* power);

/// JSON of a problem: all its fields ("problem"), the same as a line for people ("text"),
/// "attended_pairs" of one head (of one batch entry, or of all sequences that lie packed), "flops";
/// valid until the thread's next call. `problem` is JSON with the fields of a manifest's entry
/// (docs/prebuilding.md). "lengths" besides, a list, are those of sequences that lie packed.
BACKLIGHT_PEERS_API const char* backlight_peers_describe_problem(const char* problem);

/// `problem`: as above. `kernel`: "default" for what the library chooses, the name of a preset, or
/// "tile_<block_q>_<block_kv>_<warps>_<stages>"; with ":baked" behind it, the sequence lengths are
/// constants of the kernels. Several threads may plan at a time.
BACKLIGHT_PEERS_API backlight::peers::Plan* backlight_peers_make_plan(
    backlight::peers::Session* session, const char* problem, const char* kernel);
BACKLIGHT_PEERS_API void backlight_peers_free_plan(backlight::peers::Plan* plan);

BACKLIGHT_PEERS_API std::size_t backlight_peers_workspace_bytes(const backlight::peers::Plan* plan);

/// JSON of the configuration and of what the compiler reported of its kernels; valid as long as the
/// plan.
BACKLIGHT_PEERS_API const char* backlight_peers_describe(const backlight::peers::Plan* plan);

/// Enqueues the whole backward.
BACKLIGHT_PEERS_API int backlight_peers_run(const backlight::peers::Plan* plan,
                                            const backlight::peers::Tensors* tensors,
                                            void* workspace, std::size_t workspace_bytes,
                                            backlight::Stream stream);

}  // extern "C"
