#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "backlight/problem.hpp"
#include "half_types.hpp"

namespace backlight {

/// Of an element of dQ, dK and dV.
constexpr std::size_t gradient_element_bytes(const AttentionProblem& problem) noexcept {
    return problem.gradient_type == GradientType::fp32 ? 4 : 2;
}

/// The elements of a gradient, given as they lie in memory: exactly.
inline std::vector<float> gradient_values(const AttentionProblem& problem,
                                          std::span<const std::byte> memory) {
    const std::size_t count = memory.size() / gradient_element_bytes(problem);
    if (problem.gradient_type == GradientType::fp32) {
        std::vector<float> values(count);
        std::memcpy(values.data(), memory.data(), memory.size());
        return values;
    }
    std::vector<std::uint16_t> bits(count);
    std::memcpy(bits.data(), memory.data(), memory.size());
    return widen<float>(problem.dtype, bits);
}

}  // namespace backlight
