#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "backlight/problem.hpp"

namespace backlight::verification {

/// Inputs that each provoke another numerical corner of the backward.
enum class InputKind {
    /// N(0, 1) throughout.
    normal,
    /// Logits of standard deviation 25, so that they reach about ±100.
    large_logits,
    /// Every logit about -150 … -300: exp(-LSE) overflows float in a kernel that splits
    /// exp(S − LSE) into a product.
    low_lse,
    /// Every logit about 150 … 300: the same of exp(S).
    high_lse,
    /// One key of each (batch, head) takes more than 0.99 of every row's weight; key 0 with a mask,
    /// since only that one is visible to all queries. Not for windows with a left bound.
    dominant_key,
    /// The rows of a (batch, head) are equal in each tensor: P is uniform, and dQ and dK vanish, so
    /// that they must be judged by their absolute size.
    equal_rows,
    /// Student's t with three degrees of freedom, scaled to variance 1.
    heavy_tails,
    /// Every fourth row of each tensor, and of the others each second element, is below the
    /// smallest
    /// normal number of the type; what is left is N(0, 1).
    denormals,
};

inline constexpr std::array input_kinds{
    InputKind::normal,       InputKind::large_logits, InputKind::low_lse,     InputKind::high_lse,
    InputKind::dominant_key, InputKind::equal_rows,   InputKind::heavy_tails, InputKind::denormals};

const char* to_string(InputKind kind) noexcept;

/// The kind of that name; throws `invalid_argument` with the names there are.
InputKind input_kind(std::string_view name);

/// Contiguous tensors of the problem's shapes as bits of its dtype. They are rounded before
/// anything is computed from them, so that kernel and reference see equal numbers.
struct InputTensors {
    std::vector<std::uint16_t> q, k, v, d_o;
};

/// Depends on nothing but its arguments: every element is computed from its own index, by a
/// generator that is part of this library (the standard leaves its distributions to the
/// implementation). Throws `invalid_argument` when the extents make no problem, or the softmax
/// scale or the mask cannot give what the kind promises in this dtype.
InputTensors make_inputs(const AttentionProblem& problem, InputKind kind, std::uint64_t seed);

/// What an entry of Q comes to in inputs of a kind: 1 where it is one of N(0, 1) or so.
double query_amplitude(const AttentionProblem& problem, InputKind kind);

/// N(0, 1) in fp32, likewise of each element's index alone.
std::vector<float> normal_numbers(std::size_t count, std::uint64_t seed);

}  // namespace backlight::verification
