#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "conformance.hpp"
#include "half_types.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

/// Numbers on and beside the ties of both types, at the ends of their ranges, and some others.
std::vector<float> numbers() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    std::vector<float> list = {0.0F, -0.0F, 1.0F, 1.0F + 0x1p-8F, 1.0F + 0x3p-8F,
                               1.0F + 0x1p-8F + 0x1p-20F, 1.0F + 0x1p-11F, 1.0F + 0x3p-11F,
                               65519.0F, 65520.0F, 0x1p-14F, 0x1p-24F, 0x1p-25F, 0x3p-25F,
                               0x1.8p-126F, 0x1p-133F, 0x1p-134F, 0x3p-134F,
                               std::numeric_limits<float>::max(), infinity, -infinity,
                               // Exponents of results about the smallest normal number.
                               -126.0F, -127.0F, -140.0F, -200.0F, 127.0F, 128.0F};
    for (std::uint32_t i = 0; i < 300; ++i) {
        // Halves of ulps are frequent among these: 12 bits of mantissa.
        const auto mantissa = static_cast<float>(static_cast<int>(scrambled(i) % 8192) - 4096);
        list.push_back(std::ldexp(mantissa, static_cast<int>(scrambled(i + 1000) % 24) - 24));
    }
    return list;
}

}  // namespace

void check_conversions(Runtime& runtime) {
    constexpr std::uint32_t threads = 128;
    const std::vector<float> values = numbers();
    const auto count = static_cast<std::uint32_t>(values.size());
    for (const DataType type : {DataType::bf16, DataType::fp16}) {
        const ConformanceKernel kernel(runtime, conversions(type));
        const DeviceArray source(runtime, values);
        const DeviceArray packed(runtime, std::vector<std::uint32_t>(count));
        const DeviceArray unpacked(runtime, std::vector<float>(std::size_t{2} * count));
        const DeviceArray exponentials(runtime, std::vector<float>(count));
        kernel.run((count + threads - 1) / threads, threads,
                   kernel::ConversionArguments{.numbers = source.data<float>(),
                                               .packed = packed.data<unsigned>(),
                                               .unpacked = unpacked.data<float>(),
                                               .exponentials = exponentials.data<float>(),
                                               .count = static_cast<int>(count)});
        std::vector<std::uint32_t> expected_packed(count);
        std::vector<float> expected_unpacked(std::size_t{2} * count);
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint16_t low = to_bits(type, static_cast<double>(values[i]));
            const std::uint16_t high = to_bits(type, -static_cast<double>(values[i]));
            expected_packed[i] = low | static_cast<std::uint32_t>(high) << 16;
            expected_unpacked[2 * i] = from_bits(type, low);
            expected_unpacked[2 * i + 1] = from_bits(type, high);
        }
        const std::string what = type == DataType::bf16 ? "bf16" : "fp16";
        check_equal(packed.read<std::uint32_t>(), expected_packed, what + ": packed");
        check_equal(unpacked.read<float>(), expected_unpacked, what + ": unpacked");

        const std::vector<float> got = exponentials.read<float>();
        for (std::size_t i = 0; i < count; ++i) {
            const double exact = std::exp2(static_cast<double>(values[i]));
            // Beyond fp32's range both are infinite, and below it what is subnormal is flushed.
            const auto rounded = static_cast<float>(exact);
            const double expected = rounded < std::numeric_limits<float>::min() ? 0.0 : exact;
            const double tolerance = 2 * std::ldexp(1.0, -23) * exact;
            const bool right = std::isinf(rounded)
                                   ? std::isinf(got[i])
                                   : std::abs(static_cast<double>(got[i]) - expected) <= tolerance;
            CHECK_MESSAGE(right, "2^", values[i], " is ", got[i], " and not ", expected);
        }
    }
}

}  // namespace backlight::conformance
