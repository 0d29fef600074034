#include "half_types.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>

using backlight::DataType;
using backlight::from_bits;
using backlight::to_bits;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Value of a finite pattern by the definition of the format, in double arithmetic.
double defined_value(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
    const std::uint32_t mantissa = bits & ((1U << mantissa_bits) - 1);
    const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1));
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double fraction = static_cast<double>(mantissa) * std::ldexp(1.0, -mantissa_bits);
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
    return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

void check_all_patterns(DataType type, int exponent_bits, int mantissa_bits) {
    const std::uint32_t infinity_bits = ((1U << exponent_bits) - 1) << mantissa_bits;
    const std::uint32_t quiet = 1U << (mantissa_bits - 1);
    int wrong_values = 0;
    int wrong_bits = 0;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto pattern = static_cast<std::uint16_t>(bits);
        const float value = from_bits(type, pattern);
        const std::uint32_t magnitude = bits & 0x7fffU;
        bool right = false;
        std::uint32_t expected_bits = bits;
        if (magnitude > infinity_bits) {
            right = std::isnan(value);
            expected_bits |= quiet;
        } else if (magnitude == infinity_bits) {
            right = std::isinf(value) && std::signbit(value) == (bits >= 0x8000U);
        } else {
            right =
                static_cast<double>(value) == defined_value(bits, exponent_bits, mantissa_bits) &&
                std::signbit(value) == (bits >= 0x8000U);
        }
        wrong_values += right ? 0 : 1;
        wrong_bits += to_bits(type, static_cast<double>(value)) == expected_bits ? 0 : 1;
    }
    CHECK(wrong_values == 0);
    CHECK(wrong_bits == 0);
}

/// Between every two neighbours: the midpoint goes to the even one, and the least step off the
/// midpoint decides otherwise.
void check_all_midpoints(DataType type, std::uint16_t largest) {
    int wrong = 0;
    for (std::uint16_t low = 0; low < largest; ++low) {
        const auto high = static_cast<std::uint16_t>(low + 1);
        const double middle = (static_cast<double>(from_bits(type, low)) +
                               static_cast<double>(from_bits(type, high))) /
                              2;
        const std::uint16_t even = low % 2 == 0 ? low : high;
        wrong += to_bits(type, middle) == even ? 0 : 1;
        wrong += to_bits(type, -middle) == (even | 0x8000) ? 0 : 1;
        wrong += to_bits(type, std::nextafter(middle, 0.0)) == low ? 0 : 1;
        wrong += to_bits(type, std::nextafter(middle, infinity)) == high ? 0 : 1;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("every bf16 pattern has its defined value and survives the way to float and back") {
    check_all_patterns(DataType::bf16, 8, 7);
}

TEST_CASE("every fp16 pattern has its defined value and survives the way to float and back") {
    check_all_patterns(DataType::fp16, 5, 10);
}

TEST_CASE("rounding is to nearest with ties to even between all neighbours, subnormals included") {
    check_all_midpoints(DataType::bf16, 0x7f7f);
    check_all_midpoints(DataType::fp16, 0x7bff);
}

TEST_CASE("fp16 overflows to infinity from the midpoint above 65504 on") {
    CHECK(to_bits(DataType::fp16, 65504.0) == 0x7bff);
    CHECK(to_bits(DataType::fp16, std::nextafter(65520.0, 0.0)) == 0x7bff);
    CHECK(to_bits(DataType::fp16, 65520.0) == 0x7c00);
    CHECK(to_bits(DataType::fp16, -1e30) == 0xfc00);
}

TEST_CASE("bf16 overflows to infinity from the midpoint above its largest number on") {
    const double largest = 0x1.fep127;
    const double midpoint = 0x1.ffp127;
    CHECK(to_bits(DataType::bf16, largest) == 0x7f7f);
    CHECK(to_bits(DataType::bf16, std::nextafter(midpoint, 0.0)) == 0x7f7f);
    CHECK(to_bits(DataType::bf16, midpoint) == 0x7f80);
    CHECK(to_bits(DataType::bf16, static_cast<double>(std::numeric_limits<float>::max())) ==
          0x7f80);
    CHECK(to_bits(DataType::bf16, -std::numeric_limits<double>::max()) == 0xff80);
}

TEST_CASE("what lies at or below half of the smallest subnormal becomes a zero of its sign") {
    CHECK(to_bits(DataType::fp16, 0x1p-25) == 0x0000);
    CHECK(to_bits(DataType::fp16, -0x1p-25) == 0x8000);
    CHECK(to_bits(DataType::fp16, std::nextafter(0x1p-25, 1.0)) == 0x0001);
    CHECK(to_bits(DataType::bf16, 0x1p-134) == 0x0000);
    CHECK(to_bits(DataType::bf16, std::nextafter(0x1p-134, 1.0)) == 0x0001);
    CHECK(to_bits(DataType::bf16, -std::numeric_limits<double>::denorm_min()) == 0x8000);
    CHECK(to_bits(DataType::fp16, std::numeric_limits<double>::denorm_min()) == 0x0000);
}

TEST_CASE("a double is rounded once: just above a tie it goes up although float would drop that") {
    const double above_tie = 1.0 + 0x1p-8 + 0x1p-40;
    REQUIRE(static_cast<float>(above_tie) == 1.00390625F);
    CHECK(to_bits(DataType::bf16, above_tie) == 0x3f81);
}

TEST_CASE("a NaN whose payload does not fit stays a NaN of its sign") {
    const auto low_payload = std::bit_cast<float>(0xff800001U);
    CHECK(to_bits(DataType::bf16, static_cast<double>(low_payload)) == 0xffc0);
    CHECK(to_bits(DataType::fp16, static_cast<double>(low_payload)) == 0xfe00);
}
