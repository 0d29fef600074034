#include "emulation/tensor_map_content.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <span>

#include "backlight/error.hpp"
#include "emulation/shared_window.hpp"

namespace backlight::emulation {

namespace {

/// The 128 bytes. Extents and box are kept less one, so that their limits fit.
struct EncodedMap {
    std::uint64_t mark = 0;
    std::byte* address = nullptr;
    std::array<std::uint64_t, tensor_rank_limit - 1> strides{};
    std::array<std::uint32_t, tensor_rank_limit> last_index{};
    std::array<std::uint8_t, tensor_rank_limit> last_in_box{};
    std::uint8_t type = 0;
    std::uint8_t swizzle = 0;
    std::uint8_t rank = 0;
    std::uint8_t published = 0;
    std::array<std::uint8_t, 43> unused{};
    std::uint64_t checksum = 0;
};
static_assert(sizeof(EncodedMap) == sizeof(kernel::TensorMap));

constexpr std::uint64_t map_mark = 0x70616d2d6c756d65;  // "emul-map"
constexpr std::uintptr_t map_alignment = 64;

/// FNV-1a of everything before the checksum: enough to tell a map from bytes that happen to be
/// there, or from a map of which a part was overwritten.
std::uint64_t checksum(const EncodedMap& map) {
    const auto bytes = std::as_bytes(std::span(&map, 1)).first(offsetof(EncodedMap, checksum));
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) {
        hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3;
    }
    return hash;
}

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("emulated tensor map: {}", what));
}

void check_content(const TensorMapContent& content) {
    const auto address = reinterpret_cast<std::uintptr_t>(content.address);
    if (content.address == nullptr || address % 16 != 0) {
        refuse(fmt::format("the address is {:#x}: it must be a multiple of 16 bytes, not null",
                           address));
    }
    if (content.rank < 1 || content.rank > tensor_rank_limit) {
        refuse(fmt::format("the rank is {}: it must be 1 … {}", content.rank, tensor_rank_limit));
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(content.rank); ++i) {
        if (content.extents[i] < 1 || content.extents[i] > (std::int64_t{1} << 32)) {
            refuse(fmt::format("the extent of dimension {} is {}: it must be 1 … 2^32", i,
                               content.extents[i]));
        }
        if (content.box[i] < 1 || content.box[i] > 256) {
            refuse(fmt::format("the box has {} along dimension {}: it must be 1 … 256",
                               content.box[i], i));
        }
        if (i > 0 && (content.strides[i - 1] < 0 || content.strides[i - 1] % 16 != 0 ||
                      content.strides[i - 1] >= (std::int64_t{1} << 40))) {
            refuse(
                fmt::format("the stride of dimension {} is {} bytes: it must be 0 or a "
                            "positive multiple of 16 below 2^40",
                            i, content.strides[i - 1]));
        }
    }
    const std::int64_t row =
        content.box[0] * static_cast<std::int64_t>(element_bytes(content.type));
    if (row % 16 != 0) {
        refuse(fmt::format("a row of the box has {} bytes: it must be a multiple of 16", row));
    }
    const std::int64_t width = swizzle_width(content.swizzle);
    if (width != 0 && row > width) {
        refuse(
            fmt::format("a row of the box has {} bytes: with a {}-byte swizzle it must have at "
                        "most {}",
                        row, width, width));
    }
}

ElementType element_type_of(tensor_map::ElementType type) {
    switch (type) {
        case tensor_map::ElementType::bf16:
            return ElementType::bf16;
        case tensor_map::ElementType::fp16:
            return ElementType::fp16;
        case tensor_map::ElementType::fp32:
            break;
    }
    return ElementType::fp32;
}

}  // namespace

TensorMapContent content_of(const tensor_map::Request& request) {
    TensorMapContent content{
        // The device only reads through most maps, but a map does not say which.
        .address = static_cast<std::byte*>(const_cast<void*>(request.address)),
        .type = element_type_of(request.type),
        .swizzle = request.swizzle,
        .rank = request.rank};
    for (std::size_t i = 0; i < static_cast<std::size_t>(request.rank); ++i) {
        content.extents[i] = request.extents[i];
        content.box[i] = request.box[i];
        if (i > 0) {
            content.strides[i - 1] =
                request.strides[i - 1] * static_cast<std::int64_t>(element_bytes(content.type));
        }
    }
    return content;
}

void encode(const TensorMapContent& content, kernel::TensorMap& map) {
    check_content(content);
    EncodedMap encoded{.mark = map_mark,
                       .address = content.address,
                       .type = static_cast<std::uint8_t>(content.type),
                       .swizzle = static_cast<std::uint8_t>(content.swizzle),
                       .rank = static_cast<std::uint8_t>(content.rank),
                       .published = static_cast<std::uint8_t>(content.published ? 1 : 0)};
    for (std::size_t i = 0; i < static_cast<std::size_t>(content.rank); ++i) {
        encoded.last_index[i] = static_cast<std::uint32_t>(content.extents[i] - 1);
        encoded.last_in_box[i] = static_cast<std::uint8_t>(content.box[i] - 1);
        if (i > 0) {
            encoded.strides[i - 1] = static_cast<std::uint64_t>(content.strides[i - 1]);
        }
    }
    encoded.checksum = checksum(encoded);
    std::memcpy(&map, &encoded, sizeof(encoded));
}

TensorMapContent decode(const void* map) {
    const auto address = reinterpret_cast<std::uintptr_t>(map);
    if (map == nullptr || address % map_alignment != 0) {
        refuse(fmt::format("it lies at {:#x}: it must be a multiple of {} bytes, not null", address,
                           map_alignment));
    }
    EncodedMap encoded;
    std::memcpy(&encoded, map, sizeof(encoded));
    if (encoded.mark != map_mark) {
        refuse(
            fmt::format("the bytes at {:#x} are no tensor map: they start with {:#018x}, not "
                        "with the mark of one",
                        address, encoded.mark));
    }
    if (encoded.checksum != checksum(encoded)) {
        refuse(
            fmt::format("the tensor map at {:#x} was overwritten in part: its checksum is "
                        "{:#018x}, that of its bytes {:#018x}",
                        address, encoded.checksum, checksum(encoded)));
    }
    TensorMapContent content{.address = encoded.address,
                             .type = static_cast<ElementType>(encoded.type),
                             .swizzle = static_cast<tensor_map::Swizzle>(encoded.swizzle),
                             .rank = encoded.rank,
                             .published = encoded.published != 0};
    for (std::size_t i = 0; i < static_cast<std::size_t>(content.rank); ++i) {
        content.extents[i] = std::int64_t{encoded.last_index[i]} + 1;
        content.box[i] = std::int64_t{encoded.last_in_box[i]} + 1;
        if (i > 0) {
            content.strides[i - 1] = static_cast<std::int64_t>(encoded.strides[i - 1]);
        }
    }
    return content;
}

}  // namespace backlight::emulation
