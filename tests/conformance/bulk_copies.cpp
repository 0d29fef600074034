#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "conformance.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

constexpr std::uint32_t threads = 128;

/// The numbers as bytes of a type, as BulkCopyArguments numbers them.
std::vector<std::uint8_t> bytes_of(int type, const std::vector<float>& numbers) {
    std::vector<std::uint8_t> bytes;
    const auto append = [&](const auto& values) {
        const auto view = std::as_bytes(std::span(values));
        bytes.resize(view.size());
        std::memcpy(bytes.data(), view.data(), view.size());
    };
    if (type == 2) {
        append(numbers);
    } else {
        append(to_elements(type == 1 ? DataType::fp16 : DataType::bf16, numbers));
    }
    return bytes;
}

}  // namespace

void check_bulk_copies(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, bulk_round_trip());
    for (const int type : {0, 1, 2}) {
        for (const int bytes : {16, 1008, 8192}) {
            const auto count = static_cast<std::size_t>(bytes) / (type == 2 ? 4 : 2);
            const std::vector<float> source = small_integers(count, 1);
            std::vector<float> sums = small_integers(count, 2);
            const DeviceArray source_device(runtime, bytes_of(type, source));
            const DeviceArray copy(runtime,
                                   std::vector<std::uint8_t>(static_cast<std::size_t>(bytes)));
            const DeviceArray sums_device(runtime, bytes_of(type, sums));
            kernel.run(1, threads,
                       kernel::BulkCopyArguments{.source = source_device.data(),
                                                 .copy = copy.data(),
                                                 .sums = sums_device.data(),
                                                 .bytes = bytes,
                                                 .type = type});
            for (std::size_t i = 0; i < count; ++i) {
                sums[i] += source[i];
            }
            const std::string what = fmt::format("{} bytes of type {}", bytes, type);
            check_equal(copy.read<std::uint8_t>(), bytes_of(type, source), what + ": copy");
            check_equal(sums_device.read<std::uint8_t>(), bytes_of(type, sums), what + ": sums");
        }
    }
}

void check_bulk_relay(Runtime& runtime) {
    constexpr std::size_t blocks = 3;
    constexpr std::size_t words = 1024;
    const ConformanceKernel kernel(runtime, bulk_relay());
    const DeviceArray scratch(runtime, std::vector<std::uint32_t>(blocks * words));
    const DeviceArray out(runtime, std::vector<std::uint32_t>(blocks * words));
    kernel.run(blocks, threads,
               kernel::BulkRelayArguments{.scratch = scratch.data<unsigned>(),
                                          .out = out.data<unsigned>(),
                                          .words = static_cast<int>(words)});
    std::vector<std::uint32_t> expected(blocks * words);
    for (std::size_t block = 0; block < blocks; ++block) {
        for (std::size_t i = 0; i < words; ++i) {
            expected[block * words + i] = static_cast<std::uint32_t>(block * 65536 + i);
        }
    }
    check_equal(scratch.read<std::uint32_t>(), expected, "written by plain stores");
    for (std::uint32_t& word : expected) {
        word += 0x10000000U;
    }
    check_equal(out.read<std::uint32_t>(), expected, "written by bulk stores");
}

void check_async_copies(Runtime& runtime) {
    constexpr std::size_t lanes = 32;
    constexpr std::size_t place_bytes = 16;
    std::vector<std::uint8_t> source(lanes * place_bytes);
    for (std::size_t i = 0; i < source.size(); ++i) {
        source[i] = static_cast<std::uint8_t>(scrambled(static_cast<std::uint32_t>(i)) | 1);
    }
    std::vector<std::uint8_t> expected(3 * source.size(), 0xff);
    for (std::size_t area = 0; area < 3; ++area) {
        const std::size_t size = std::size_t{4} << area;
        for (std::size_t lane = 0; lane < lanes; ++lane) {
            std::uint8_t* place = expected.data() + (area * lanes + lane) * place_bytes;
            const std::size_t read = std::min(lane, size);
            std::copy_n(source.data() + lane * place_bytes, read, place);
            std::fill_n(place + read, size - read, std::uint8_t{0});
        }
    }
    const ConformanceKernel kernel(runtime, async_copies());
    const DeviceArray source_device(runtime, source);
    const DeviceArray out(runtime, std::vector<std::uint8_t>(expected.size()));
    kernel.run(1, lanes,
               kernel::AsyncCopyArguments{.source = source_device.data(), .out = out.data()});
    check_equal(out.read<std::uint8_t>(), expected, "copies of 4, 8 and 16 bytes");
}

}  // namespace backlight::conformance
