#include "emulation/tensor_copy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backlight/error.hpp"
#include "emulation/half_type.hpp"
#include "half_types.hpp"

namespace backlight::emulation {

namespace {

constexpr std::uint32_t piece_bytes = 16;
constexpr std::uint32_t shared_alignment = 128;

/// Bytes from one row of the box to the next in shared memory.
std::size_t row_pitch(const TensorMapContent& content) {
    const std::size_t row = static_cast<std::size_t>(content.box[0]) * element_bytes(content.type);
    return std::max(row, static_cast<std::size_t>(swizzle_width(content.swizzle)));
}

std::size_t box_rows(const TensorMapContent& content) {
    std::size_t rows = 1;
    for (std::size_t i = 1; i < static_cast<std::size_t>(content.rank); ++i) {
        rows *= static_cast<std::size_t>(content.box[i]);
    }
    return rows;
}

/// Adds the pieces of one 16-byte chunk of a row: elements [first, first + count) of dimension 0,
/// of which [0, extent) exist. `row` is the address of element 0, null where the row is out of
/// bounds.
void add_chunk(std::vector<CopyPiece>& pieces, std::byte* row, std::int64_t first,
               std::int64_t count, std::int64_t extent, std::size_t size,
               std::uint32_t shared_address) {
    const std::int64_t end = first + count;
    const std::int64_t inside_begin =
        row == nullptr ? end : std::clamp<std::int64_t>(0, first, end);
    const std::int64_t inside_end =
        row == nullptr ? end : std::clamp<std::int64_t>(extent, inside_begin, end);
    const auto add = [&](std::int64_t from, std::int64_t to, bool inside) {
        if (from < to) {
            const auto skipped = static_cast<std::uint32_t>(from - first);
            pieces.push_back(
                {.shared_address = shared_address + skipped * static_cast<std::uint32_t>(size),
                 .global = inside ? row + from * static_cast<std::int64_t>(size) : nullptr,
                 .bytes =
                     static_cast<std::uint32_t>(to - from) * static_cast<std::uint32_t>(size)});
        }
    };
    add(first, inside_begin, false);
    add(inside_begin, inside_end, true);
    add(inside_end, end, false);
}

/// Several blocks, on threads of the host, may add to the same element at once.
void add_half(DataType type, std::byte* global, const std::byte* shared) {
    std::uint16_t addend = 0;
    std::memcpy(&addend, shared, sizeof(addend));
    const std::atomic_ref<std::uint16_t> target(*reinterpret_cast<std::uint16_t*>(global));
    std::uint16_t old = target.load(std::memory_order_relaxed);
    while (!target.compare_exchange_weak(
        old,
        to_bits(type, static_cast<double>(from_bits(type, old)) +
                          static_cast<double>(from_bits(type, addend))),
        std::memory_order_relaxed)) {
    }
}

void add_float(std::byte* global, const std::byte* shared) {
    float addend = 0;
    std::memcpy(&addend, shared, sizeof(addend));
    std::atomic_ref<float>(*reinterpret_cast<float*>(global))
        .fetch_add(addend, std::memory_order_relaxed);
}

}  // namespace

std::size_t box_bytes(const TensorMapContent& content) {
    return static_cast<std::size_t>(content.box[0]) * element_bytes(content.type) *
           box_rows(content);
}

std::size_t shared_bytes(const TensorMapContent& content) {
    return row_pitch(content) * box_rows(content);
}

std::string check_shared_address(const TensorMapContent& content, std::uint32_t address,
                                 const SharedWindow& shared) {
    if (address % shared_alignment != 0) {
        return fmt::format("the box's shared address is {:#x}: it must be a multiple of {} bytes",
                           address, shared_alignment);
    }
    if (const std::uint32_t pattern = pattern_bytes(content.swizzle); address % pattern != 0) {
        return fmt::format(
            "the box's shared address is {:#x}: with a {}-byte swizzle it must be a multiple of {} "
            "bytes, after which the pattern repeats",
            address, swizzle_width(content.swizzle), pattern);
    }
    if (const std::size_t bytes = shared_bytes(content); !shared.contains(address, bytes)) {
        return fmt::format(
            "the box's shared address is {:#x} and its size {} bytes: the block's shared memory is "
            "{:#x} … {:#x}",
            address, bytes, shared.base, shared.base + shared.bytes.size());
    }
    return {};
}

std::string check_coordinates(const TensorMapContent& content,
                              std::span<const std::int32_t> coordinates) {
    const std::int64_t bytes =
        std::int64_t{coordinates[0]} * static_cast<std::int64_t>(element_bytes(content.type));
    if (bytes % std::int64_t{piece_bytes} != 0) {
        return fmt::format(
            "the box's first coordinate is {} ({} bytes): it must be a multiple of {} bytes",
            coordinates[0], bytes, piece_bytes);
    }
    return {};
}

std::vector<CopyPiece> copy_pieces(const TensorMapContent& content,
                                   std::span<const std::int32_t> coordinates,
                                   std::uint32_t shared_address) {
    const std::size_t size = element_bytes(content.type);
    const auto chunk_elements = static_cast<std::int64_t>(piece_bytes / size);
    const std::size_t rows = box_rows(content);
    const std::size_t pitch = row_pitch(content);
    std::vector<CopyPiece> pieces;
    pieces.reserve(box_bytes(content) / piece_bytes);

    for (std::size_t row = 0; row < rows; ++row) {
        std::byte* global = content.address;
        std::size_t rest = row;
        bool inside = true;
        for (std::size_t i = 1; i < static_cast<std::size_t>(content.rank); ++i) {
            const auto box = static_cast<std::size_t>(content.box[i]);
            const std::int64_t index = coordinates[i] + static_cast<std::int64_t>(rest % box);
            rest /= box;
            inside = inside && index >= 0 && index < content.extents[i];
            global = inside ? global + index * content.strides[i - 1] : nullptr;
        }
        for (std::int64_t x = 0; x < content.box[0]; x += chunk_elements) {
            const auto unswizzled = static_cast<std::uint32_t>(shared_address + row * pitch +
                                                               static_cast<std::size_t>(x) * size);
            add_chunk(pieces, global, coordinates[0] + x, chunk_elements, content.extents[0], size,
                      swizzled(content.swizzle, unswizzled));
        }
    }
    return pieces;
}

void load(std::span<const CopyPiece> pieces, const SharedWindow& shared) {
    for (const CopyPiece& piece : pieces) {
        std::byte* destination = shared.at(piece.shared_address);
        if (piece.global == nullptr) {
            std::memset(destination, 0, piece.bytes);
        } else {
            std::memcpy(destination, piece.global, piece.bytes);
        }
    }
}

void store(std::span<const CopyPiece> pieces, const SharedWindow& shared) {
    for (const CopyPiece& piece : pieces) {
        if (piece.global != nullptr) {
            std::memcpy(piece.global, shared.at(piece.shared_address), piece.bytes);
        }
    }
}

void reduce_add(ElementType type, std::span<const CopyPiece> pieces, const SharedWindow& shared) {
    const std::size_t size = element_bytes(type);
    for (const CopyPiece& piece : pieces) {
        if (piece.global == nullptr) {
            continue;
        }
        const std::byte* source = shared.at(piece.shared_address);
        for (std::size_t i = 0; i < piece.bytes; i += size) {
            if (type == ElementType::fp32) {
                add_float(piece.global + i, source + i);
            } else {
                add_half(half_type(type), piece.global + i, source + i);
            }
        }
    }
}

std::string check_bulk(std::uint32_t shared_address, const void* global, std::uint32_t bytes,
                       const SharedWindow& shared) {
    const auto global_address = reinterpret_cast<std::uintptr_t>(global);
    if (bytes == 0 || bytes % piece_bytes != 0) {
        return fmt::format("the bulk copy's size is {} bytes: it must be a positive multiple of {}",
                           bytes, piece_bytes);
    }
    if (shared_address % piece_bytes != 0) {
        return fmt::format(
            "the bulk copy's shared address is {:#x}: it must be a multiple of {} bytes",
            shared_address, piece_bytes);
    }
    if (global == nullptr || global_address % piece_bytes != 0) {
        return fmt::format(
            "the bulk copy's global address is {:#x}: it must be a multiple of {} bytes, not null",
            global_address, piece_bytes);
    }
    if (!shared.contains(shared_address, bytes)) {
        return fmt::format(
            "the bulk copy's shared address is {:#x} and its size {} bytes: the block's shared "
            "memory is {:#x} … {:#x}",
            shared_address, bytes, shared.base, shared.base + shared.bytes.size());
    }
    return {};
}

std::vector<CopyPiece> bulk_pieces(std::uint32_t shared_address, std::byte* global,
                                   std::uint32_t bytes) {
    std::vector<CopyPiece> pieces;
    pieces.reserve(bytes / piece_bytes);
    for (std::uint32_t i = 0; i < bytes; i += piece_bytes) {
        pieces.push_back(
            {.shared_address = shared_address + i, .global = global + i, .bytes = piece_bytes});
    }
    return pieces;
}

}  // namespace backlight::emulation
