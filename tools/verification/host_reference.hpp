#pragma once

#include <span>

#include "backlight/problem.hpp"
#include "verification/packing.hpp"

namespace backlight::verification {

/// Attention in double precision on the host: what kernels are measured against on small problems.
/// All tensors are contiguous, of the shapes and by the formulas of AttentionProblem; types and
/// `deterministic` play no part, and any head dimension will do.
///
/// Of packed problems tensors are (heads, total, head_dim), and `sequences` says where the
/// sequences lie; rows that are none's are neither read nor written, but that the backward's dK and
/// dV are 0 there.
struct ForwardParameters {
    AttentionProblem problem;
    std::span<const double> q, k, v;
    std::span<double> o;
    /// Natural logarithm of each row's sum of exp(softmax_scale · q·k).
    std::span<double> lse;
    std::span<const PackedSequence> sequences = {};
};

/// Writes O and LSE. Throws `invalid_argument` when a span's size does not fit the problem, an
/// extent is not positive (lengths and windows: negative), or heads_kv does not divide heads.
void reference_forward(const ForwardParameters& parameters);

struct BackwardParameters {
    AttentionProblem problem;
    std::span<const double> q, k, v;
    /// As given, not recomputed: pass the rounded O and LSE that the kernel under test receives.
    std::span<const double> o, lse;
    std::span<const double> d_o;
    std::span<double> d_q, d_k, d_v;
    std::span<const PackedSequence> sequences = {};
};

/// Writes dQ, dK and dV; what they held before is ignored. Throws as `reference_forward` does.
void reference_backward(const BackwardParameters& parameters);

}  // namespace backlight::verification
