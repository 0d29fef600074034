#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "backlight/problem.hpp"

namespace backlight::tuning {

/// Compares one gradient, rows of `head_dim` values, with the fp32 reference. Returns what is
/// wrong, or nothing. Accepted are, for inputs of N(0, 1), a relative L2 of 5e-3 in bf16 and 1e-3
/// in fp16 (3e-3 in bf16 from 512 queries on), about twice what rounding P, dS and the result
/// costs; and four times that in a row. A row shorter than a hundredth of the root-mean-square row
/// counts as that long.
std::string gradient_fault(const AttentionProblem& problem, std::span<const float> values,
                           std::span<const float> reference, std::int64_t head_dim);

}  // namespace backlight::tuning
