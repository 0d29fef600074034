#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backlight/problem.hpp"

namespace backlight {

/// How a 16-bit floating-point type divides its bits: one sign bit, then exponent, then mantissa.
struct HalfFormat {
    int exponent_bits;
    int mantissa_bits;

    constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
    /// Exponent of the smallest normal number; subnormals share it.
    constexpr int minimum_exponent() const { return 1 - bias(); }
    constexpr std::uint32_t infinity() const {
        return ((std::uint32_t{1} << exponent_bits) - 1) << mantissa_bits;
    }
};

constexpr HalfFormat half_format(DataType type) {
    return type == DataType::bf16 ? HalfFormat{.exponent_bits = 8, .mantissa_bits = 7}
                                  : HalfFormat{.exponent_bits = 5, .mantissa_bits = 10};
}

/// The bits of `value` rounded to nearest, ties to even: what exceeds the type's range becomes an
/// infinity, what lies below it a subnormal or a signed zero; a NaN stays one and becomes quiet.
///
/// Takes a double, which holds every float exactly, so that a double is rounded once and not twice
/// (by way of float, a value just above a tie would first become the tie).
constexpr std::uint16_t to_bits(DataType type, double value) {
    constexpr int double_mantissa_bits = 52;
    const HalfFormat format = half_format(type);
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const auto sign = static_cast<std::uint32_t>((bits >> 63) << 15);
    const int biased_exponent = static_cast<int>((bits >> double_mantissa_bits) & 0x7ff);
    const std::uint64_t mantissa = bits & ((std::uint64_t{1} << double_mantissa_bits) - 1);

    if (biased_exponent == 0x7ff) {
        std::uint32_t result = format.infinity();
        if (mantissa != 0) {
            result |= std::uint32_t{1} << (format.mantissa_bits - 1);
            result |= static_cast<std::uint32_t>(mantissa >>
                                                 (double_mantissa_bits - format.mantissa_bits));
        }
        return static_cast<std::uint16_t>(sign | result);
    }
    const int exponent = biased_exponent - 1023;
    if (exponent > format.bias()) {
        return static_cast<std::uint16_t>(sign | format.infinity());
    }

    const bool subnormal = exponent < format.minimum_exponent();
    int dropped_bits = double_mantissa_bits - format.mantissa_bits;
    if (subnormal) {
        dropped_bits += format.minimum_exponent() - exponent;
    }
    // Below half of the smallest subnormal. Doubles that are subnormal themselves end here too, so
    // that the implicit leading one below is right for all others.
    if (dropped_bits > double_mantissa_bits + 1) {
        return static_cast<std::uint16_t>(sign);
    }
    const std::uint64_t significand = mantissa | (std::uint64_t{1} << double_mantissa_bits);
    const std::uint64_t half = std::uint64_t{1} << (dropped_bits - 1);
    const std::uint64_t remainder = significand & ((half << 1) - 1);
    auto rounded = static_cast<std::uint32_t>(significand >> dropped_bits);
    if (remainder > half || (remainder == half && (rounded & 1) != 0)) {
        ++rounded;
    }
    // The leading one of a normal number is added into the exponent field (hence the -1), so that a
    // carry out of the mantissa moves on to the next exponent, and from the largest to infinity.
    const int exponent_field = subnormal ? 0 : exponent + format.bias() - 1;
    return static_cast<std::uint16_t>(
        sign | ((static_cast<std::uint32_t>(exponent_field) << format.mantissa_bits) + rounded));
}

/// The value of the bits, exactly.
constexpr float from_bits(DataType type, std::uint16_t bits) {
    if (type == DataType::bf16) {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    // Selections instead of branches: a loop over many elements is vectorised.
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t magnitude = bits & 0x7fff;
    // The difference of the biases is added to the exponent, twice for infinities and NaNs, whose
    // exponent becomes that of float's own.
    const std::uint32_t bias = (127U - 15U) << 23;
    const std::uint32_t normal = (magnitude << 13) + (magnitude >= 0x7c00 ? 2 * bias : bias);
    // Below 2^-14: a whole number of 2^-24, which float holds as a normal number.
    const auto subnormal =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
    return std::bit_cast<float>(sign | (magnitude < 0x400 ? subnormal : normal));
}

/// `to_bits` of each value.
template <typename Real>
std::vector<std::uint16_t> round_values(DataType type, std::span<const Real> values) {
    std::vector<std::uint16_t> bits(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        bits[i] = to_bits(type, static_cast<double>(values[i]));
    }
    return bits;
}

/// `from_bits` of each pattern, as floats or doubles.
template <typename Real>
std::vector<Real> widen(DataType type, std::span<const std::uint16_t> bits) {
    std::vector<Real> values(bits.size());
    for (std::size_t i = 0; i < bits.size(); ++i) {
        values[i] = static_cast<Real>(from_bits(type, bits[i]));
    }
    return values;
}

}  // namespace backlight
