#include "emulation/matrix_descriptor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <cstddef>
#include <cstring>

#include "half_types.hpp"

namespace backlight::emulation {

namespace {

constexpr int element_bytes = 2;
constexpr int piece_elements = 8;
constexpr std::uint32_t piece_bytes = 16;
/// What the 14 bits of a descriptor's address can name, in bytes.
constexpr std::uint32_t address_limit = 1U << 18;

std::uint32_t field(std::uint64_t bits, int lowest, int count) {
    return static_cast<std::uint32_t>(bits >> lowest) & ((1U << count) - 1);
}

/// Calls visit(address, outer, k) with the first element of every 16-byte piece.
template <typename Visitor>
void for_each_piece(const MatrixDescriptor& descriptor, Major major, int outer,
                    const Visitor& visit) {
    const int outer_step = major == Major::mn ? piece_elements : 1;
    const int k_step = major == Major::k ? piece_elements : 1;
    for (int i = 0; i < outer; i += outer_step) {
        for (int k = 0; k < wgmma_k; k += k_step) {
            visit(element_address(descriptor, major, i, k), i, k);
        }
    }
}

/// Calls store(outer, k, value) with every element of an operand.
template <typename Store>
void fetch(DataType type, const MatrixDescriptor& descriptor, Major major, int outer,
           const SharedWindow& shared, const Store& store) {
    for_each_piece(descriptor, major, outer, [&](std::uint32_t address, int i, int k) {
        MatrixRow piece;
        std::memcpy(piece.data(), shared.at(address), sizeof(piece));
        for (int e = 0; e < piece_elements; ++e) {
            const float value = from_bits(type, piece[static_cast<std::size_t>(e)]);
            store(static_cast<std::size_t>(major == Major::mn ? i + e : i),
                  static_cast<std::size_t>(major == Major::k ? k + e : k), value);
        }
    });
}

/// Bytes along the contiguous dimension that an operand takes of one row of the swizzle.
std::uint32_t bytes_in_row(Major major, int outer, std::uint32_t width) {
    const int elements = major == Major::k ? wgmma_k : outer;
    return std::min(static_cast<std::uint32_t>(elements * element_bytes), width);
}

std::string validate_bits(std::uint64_t bits, const std::string& operand) {
    struct Reserved {
        int lowest;
        int count;
    };
    for (const auto& [lowest, count] :
         {Reserved{14, 2}, Reserved{30, 2}, Reserved{46, 3}, Reserved{52, 10}}) {
        if (const std::uint32_t value = field(bits, lowest, count); value != 0) {
            return fmt::format(
                "descriptor {:#018x} of {}: the reserved bits {} … {} are {:#x}: they must be zero",
                bits, operand, lowest, lowest + count - 1, value);
        }
    }
    return {};
}

std::string validate_start(std::uint64_t bits, const MatrixDescriptor& descriptor, Major major,
                           int outer, const std::string& operand) {
    const std::uint32_t width = swizzle_width(descriptor.swizzle);
    if (width == 0) {
        if (descriptor.base_offset != 0) {
            return fmt::format(
                "descriptor {:#018x} of {}: the base offset is {}: without a swizzle it must be 0",
                bits, operand, descriptor.base_offset);
        }
        return {};
    }
    const std::uint32_t pattern = pattern_bytes(descriptor.swizzle);
    const std::uint32_t in_pattern =
        (descriptor.start_address - 128 * descriptor.base_offset) % pattern;
    if (in_pattern >= width) {
        return fmt::format(
            "descriptor {:#018x} of {}: the start address is {:#x} with base offset {}: with a "
            "{}-byte swizzle it must lie in the first {} bytes of a pattern, which repeats every "
            "{} bytes",
            bits, operand, descriptor.start_address, descriptor.base_offset, width, width, pattern);
    }
    if (const std::uint32_t used = bytes_in_row(major, outer, width); in_pattern + used > width) {
        return fmt::format(
            "descriptor {:#018x} of {}: the start address is {:#x}, {} bytes into a row of the "
            "{}-byte swizzle: the {} bytes of the operand's row must end in it",
            bits, operand, descriptor.start_address, in_pattern, width, used);
    }
    return {};
}

}  // namespace

MatrixDescriptor decode_descriptor(std::uint64_t bits) {
    static constexpr tensor_map::Swizzle swizzles[] = {
        tensor_map::Swizzle::none, tensor_map::Swizzle::bytes_128, tensor_map::Swizzle::bytes_64,
        tensor_map::Swizzle::bytes_32};
    return {.start_address = field(bits, 0, 14) << 4,
            .leading_offset = field(bits, 16, 14) << 4,
            .stride_offset = field(bits, 32, 14) << 4,
            .base_offset = field(bits, 49, 3),
            .swizzle = swizzles[field(bits, 62, 2)]};
}

std::uint32_t element_address(const MatrixDescriptor& descriptor, Major major, int outer, int k) {
    const bool plain = descriptor.swizzle == tensor_map::Swizzle::none;
    // The layout is the same for both majors, with M or N and K exchanged, but for the offsets'
    // roles. Without a swizzle its rows are one piece wide, and pieces lie side by side.
    const auto contiguous = static_cast<std::uint32_t>(major == Major::k ? k : outer);
    const auto across = static_cast<std::uint32_t>(major == Major::k ? outer : k);
    const std::uint32_t width = plain ? piece_bytes : swizzle_width(descriptor.swizzle);
    const std::uint32_t row_elements = width / element_bytes;

    std::uint32_t contiguous_offset = descriptor.leading_offset;
    std::uint32_t across_offset = descriptor.stride_offset;
    if (plain && major == Major::mn) {
        std::swap(contiguous_offset, across_offset);
    }
    // Advancing K inside a row of the swizzle moves the start address: a K-major operand may begin
    // anywhere in the row, but it never leaves it.
    const std::uint32_t address = descriptor.start_address +
                                  contiguous % row_elements * element_bytes +
                                  contiguous / row_elements * contiguous_offset +
                                  across % 8 * width + across / 8 * across_offset;
    return swizzled(descriptor.swizzle, address, descriptor.base_offset);
}

std::vector<std::uint32_t> piece_addresses(const MatrixDescriptor& descriptor, Major major,
                                           int outer) {
    std::vector<std::uint32_t> addresses;
    addresses.reserve(2 * static_cast<std::size_t>(outer));
    for_each_piece(descriptor, major, outer,
                   [&](std::uint32_t address, int, int) { addresses.push_back(address); });
    return addresses;
}

std::string validate_descriptor(std::uint64_t bits, Major major, int outer,
                                const SharedWindow& shared, const std::string& operand) {
    if (std::string text = validate_bits(bits, operand); !text.empty()) {
        return text;
    }
    const MatrixDescriptor descriptor = decode_descriptor(bits);
    if (std::string text = validate_start(bits, descriptor, major, outer, operand); !text.empty()) {
        return text;
    }
    std::string text;
    std::bitset<address_limit / piece_bytes> seen;
    for_each_piece(descriptor, major, outer, [&](std::uint32_t address, int i, int k) {
        if (!text.empty()) {
            return;
        }
        if (!shared.contains(address, piece_bytes) || address >= address_limit) {
            text = fmt::format(
                "descriptor {:#018x} of {}: with start address {:#x}, leading offset {} and stride "
                "offset {} the element ({}, k = {}) lies at {:#x}: the block's shared memory is "
                "{:#x} … {:#x}",
                bits, operand, descriptor.start_address, descriptor.leading_offset,
                descriptor.stride_offset, i, k, address, shared.base,
                shared.base + shared.bytes.size());
        } else if (seen[address / piece_bytes]) {
            text = fmt::format(
                "descriptor {:#018x} of {}: with leading offset {} and stride offset {} the "
                "element ({}, k = {}) lies at {:#x}, where another one lies: the parts of an "
                "operand must not overlap",
                bits, operand, descriptor.leading_offset, descriptor.stride_offset, i, k, address);
        } else {
            seen.set(address / piece_bytes);
        }
    });
    return text;
}

WgmmaMatrixA fetch_a(DataType type, const MatrixDescriptor& descriptor, Major major,
                     const SharedWindow& shared) {
    WgmmaMatrixA a{};
    fetch(type, descriptor, major, wgmma_m, shared,
          [&](std::size_t m, std::size_t k, float value) { a[m][k] = value; });
    return a;
}

void fetch_b(DataType type, const MatrixDescriptor& descriptor, Major major, int n,
             const SharedWindow& shared, WgmmaMatrixB& b) {
    fetch(type, descriptor, major, n, shared,
          [&](std::size_t column, std::size_t k, float value) { b[k][column] = value; });
}

}  // namespace backlight::emulation
