#include "emulation/tensor_copy.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "half_types.hpp"

// The kernels' own idea of a swizzled tile, compiled for the host.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): CUDA's names.
#define __device__
#define __forceinline__ inline
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
#include "primitives/swizzle.cuh"
#undef __device__
#undef __forceinline__

using backlight::DataType;
using namespace backlight::emulation;
using backlight::tensor_map::Swizzle;

namespace {

constexpr std::uint32_t window_base = 1024;
constexpr auto untouched = std::byte{0xee};

struct Shared {
    std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{96} * 1024, untouched);
    SharedWindow window{.base = window_base, .bytes = bytes};
};

/// A tensor with distinct elements, its rows wider apart than they are long.
struct Tensor {
    Tensor(ElementType type, Swizzle swizzle, std::vector<std::int64_t> extents,
           std::vector<std::int64_t> box) {
        content.type = type;
        content.swizzle = swizzle;
        content.rank = static_cast<int>(extents.size());
        std::int64_t bytes = 0;
        for (std::size_t i = 0; i < extents.size(); ++i) {
            content.extents[i] = extents[i];
            content.box[i] = box[i];
            if (i == 0) {
                bytes = extents[0] * static_cast<std::int64_t>(element_bytes(type));
            } else {
                content.strides[i - 1] = (bytes + 15) / 16 * 16 + 16;
                bytes = content.strides[i - 1] * extents[i];
            }
        }
        storage.resize(static_cast<std::size_t>(bytes) / 16 + 1);
        content.address = reinterpret_cast<std::byte*>(storage.data());
        for (std::size_t i = 0; i < 16 * storage.size(); ++i) {
            // Never that of untouched shared memory nor zero, and no period of a power of two.
            content.address[i] = static_cast<std::byte>(1 + i * 7 % 211);
        }
    }

    struct alignas(16) Sixteen {
        std::byte bytes[16];
    };
    std::vector<Sixteen> storage;
    TensorMapContent content;
};

/// Offset of an element in a box: rows one after another, a swizzle width apart where there is one,
/// the chunks of 16 bytes of a row permuted by the number of the row.
std::size_t box_offset(const TensorMapContent& content, std::size_t row, std::size_t column) {
    const std::size_t byte = column * element_bytes(content.type);
    const std::size_t chunk = byte / 16;
    const std::size_t rest = byte % 16;
    switch (content.swizzle) {
        case Swizzle::bytes_128:
            return row * 128 + (chunk ^ (row % 8)) * 16 + rest;
        case Swizzle::bytes_64:
            return row * 64 + (chunk ^ (row / 2 % 4)) * 16 + rest;
        case Swizzle::bytes_32:
            return row * 32 + (chunk ^ (row / 4 % 2)) * 16 + rest;
        case Swizzle::none:
            break;
    }
    return row * static_cast<std::size_t>(content.box[0]) * element_bytes(content.type) + byte;
}

/// Calls visit(offset in the box, element in global memory or null where out of bounds) for each
/// element of the box, by five nested loops.
template <typename Visitor>
void for_each_element(const TensorMapContent& content, std::array<std::int32_t, 5> at,
                      const Visitor& visit) {
    std::array<std::int64_t, 5> box{1, 1, 1, 1, 1};
    for (std::size_t i = 0; i < static_cast<std::size_t>(content.rank); ++i) {
        box[i] = content.box[i];
    }
    std::size_t row = 0;
    for (std::int64_t e = 0; e < box[4]; ++e) {
        for (std::int64_t d = 0; d < box[3]; ++d) {
            for (std::int64_t c = 0; c < box[2]; ++c) {
                for (std::int64_t b = 0; b < box[1]; ++b, ++row) {
                    for (std::int64_t a = 0; a < box[0]; ++a) {
                        const std::array<std::int64_t, 5> index{at[0] + a, at[1] + b, at[2] + c,
                                                                at[3] + d, at[4] + e};
                        bool inside = true;
                        std::int64_t offset =
                            index[0] * static_cast<std::int64_t>(element_bytes(content.type));
                        for (std::size_t i = 0; i < static_cast<std::size_t>(content.rank); ++i) {
                            inside = inside && 0 <= index[i] && index[i] < content.extents[i];
                            offset += i > 0 ? index[i] * content.strides[i - 1] : 0;
                        }
                        visit(box_offset(content, row, static_cast<std::size_t>(a)),
                              inside ? content.address + offset : nullptr);
                    }
                }
            }
        }
    }
}

std::vector<CopyPiece> pieces_at(const TensorMapContent& content, std::array<std::int32_t, 5> at,
                                 std::uint32_t shared_address) {
    const auto coordinates =
        std::span<const std::int32_t>(at).first(static_cast<std::size_t>(content.rank));
    CHECK(check_coordinates(content, coordinates) == "");
    return copy_pieces(content, coordinates, shared_address);
}

/// Loads the box and compares the whole of shared memory, then stores numbers of its own from
/// there and compares the whole of the tensor.
void check_box(Tensor& tensor, std::array<std::int32_t, 5> at) {
    const TensorMapContent& content = tensor.content;
    constexpr std::uint32_t address = window_base + 2048;
    Shared shared;
    REQUIRE(check_shared_address(content, address, shared.window) == "");
    const std::vector<CopyPiece> pieces = pieces_at(content, at, address);

    std::size_t bytes = 0;
    for (const CopyPiece& piece : pieces) {
        CHECK(piece.bytes <= 16);
        bytes += piece.bytes;
    }
    CHECK(bytes == box_bytes(content));

    const std::size_t size = element_bytes(content.type);
    std::vector<std::byte> expected = shared.bytes;
    for_each_element(content, at, [&](std::size_t offset, const std::byte* element) {
        for (std::size_t i = 0; i < size; ++i) {
            expected[2048 + offset + i] = element == nullptr ? std::byte{0} : element[i];
        }
    });
    load(pieces, shared.window);
    CHECK(shared.bytes == expected);

    for (std::size_t i = 0; i < shared.bytes.size(); ++i) {
        shared.bytes[i] = static_cast<std::byte>(i * 13 % 251);
    }
    std::vector<Tensor::Sixteen> storage = tensor.storage;
    auto* copy = reinterpret_cast<std::byte*>(storage.data());
    for_each_element(content, at, [&](std::size_t offset, const std::byte* element) {
        if (element != nullptr) {
            std::memcpy(copy + (element - content.address), &shared.bytes[2048 + offset], size);
        }
    });
    store(pieces, shared.window);
    CHECK(std::memcmp(copy, content.address, storage.size() * 16) == 0);
}

}  // namespace

TEST_CASE("a box is copied row by row with the swizzle that its map names") {
    struct Row {
        Swizzle swizzle;
        std::int64_t elements;
    };
    static constexpr Row rows[] = {{Swizzle::none, 96},
                                   {Swizzle::bytes_128, 64},
                                   {Swizzle::bytes_64, 32},
                                   {Swizzle::bytes_32, 16}};
    for (const Row& row : rows) {
        CAPTURE(row.elements);
        Tensor halves(ElementType::fp16, row.swizzle, {128, 40}, {row.elements, 24});
        check_box(halves, {8, 5});
        Tensor floats(ElementType::fp32, row.swizzle, {128, 40}, {row.elements / 2, 24});
        check_box(floats, {12, 5});
    }
}

TEST_CASE("rows narrower than their swizzle lie a swizzle width apart") {
    // As an H200 does it, which also counts the box's own bytes on the barrier.
    Tensor tensor(ElementType::bf16, Swizzle::bytes_128, {128, 40}, {16, 24});
    CHECK(box_bytes(tensor.content) == 24 * 32);
    CHECK(shared_bytes(tensor.content) == 24 * 128);
    check_box(tensor, {16, 3});
}

TEST_CASE("a box over any edge reads zeros there and writes nothing there") {
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::bytes_128}) {
        for (const std::int32_t x : {-72, -64, -8, 0, 64, 72, 96, 104, 1000}) {
            for (const std::int32_t y : {-17, -16, -1, 0, 24, 39, 40}) {
                CAPTURE(x);
                CAPTURE(y);
                Tensor tensor(ElementType::bf16, swizzle, {101, 40}, {64, 16});
                check_box(tensor, {x, y});
            }
        }
    }
}

TEST_CASE("a box of fp32 elements is cut at the very element where a row ends") {
    for (const std::int64_t extent : {1, 2, 3, 5, 31, 33}) {
        Tensor tensor(ElementType::fp32, Swizzle::bytes_128, {extent, 9}, {32, 8});
        check_box(tensor, {0, 0});
        check_box(tensor, {-4, 3});
    }
}

TEST_CASE("boxes of one and three and five dimensions are copied inside and over the edges") {
    Tensor line(ElementType::bf16, Swizzle::none, {77}, {256});
    check_box(line, {0});
    check_box(line, {-16});
    check_box(line, {72});

    Tensor volume(ElementType::fp16, Swizzle::bytes_64, {40, 7, 5}, {32, 4, 3});
    for (const std::int32_t y : {-2, 1, 5}) {
        for (const std::int32_t z : {-1, 0, 4}) {
            check_box(volume, {16, y, z});
        }
    }

    Tensor five(ElementType::fp32, Swizzle::bytes_32, {12, 5, 4, 3, 6}, {8, 3, 2, 2, 3});
    check_box(five, {0, 1, 1, 0, 2});
    check_box(five, {8, -1, 3, 2, 5});
    check_box(five, {-4, 4, -1, -1, -2});
    check_box(five, {0, 0, 0, 0, 6});
}

TEST_CASE("a loaded box is the swizzled tile that the kernels address") {
    const auto check = [](Swizzle swizzle, auto tile, std::int64_t panel_columns) {
        using Tile = decltype(tile);
        Tensor tensor(ElementType::bf16, swizzle, {128, 64}, {panel_columns, 32});
        Shared shared;
        const Tile in_shared{.base = window_base + 4096};
        // One box a panel, as the kernels load their tiles.
        for (int panel = 0; panel < Tile::panels; ++panel) {
            load(pieces_at(tensor.content, {static_cast<std::int32_t>(panel * panel_columns), 16},
                           in_shared.base + static_cast<std::uint32_t>(panel * Tile::panel_bytes)),
                 shared.window);
        }
        int wrong_chunks = 0;
        for (int row = 0; row < 32; ++row) {
            for (int column = 0; column < Tile::panels * panel_columns; column += 8) {
                const std::byte* global = tensor.content.address +
                                          (row + 16) * tensor.content.strides[0] +
                                          std::int64_t{2} * column;
                const std::byte* found = shared.window.at(in_shared.address(row, column));
                wrong_chunks += std::memcmp(found, global, 16) == 0 ? 0 : 1;
            }
        }
        CHECK(wrong_chunks == 0);
    };
    check(Swizzle::bytes_128, backlight::kernel::SwizzledTile<32, 128>{}, 64);
    check(Swizzle::bytes_64, backlight::kernel::SwizzledTile<32, 96>{}, 32);
}

TEST_CASE("the swizzle works on absolute addresses when a box starts inside a pattern") {
    // Rows 3 … 7 of a pattern: the row's number in the pattern counts, not that in the box.
    Tensor tensor(ElementType::bf16, Swizzle::bytes_128, {64, 8}, {64, 4});
    const std::vector<CopyPiece> pieces = pieces_at(tensor.content, {0, 0}, 1024 + 3 * 128);
    REQUIRE(pieces.size() == 32);
    CHECK(pieces[0].shared_address == 1024 + 3 * 128 + 3 * 16);
    CHECK(pieces[1].shared_address == 1024 + 3 * 128 + 2 * 16);
    CHECK(pieces[8].shared_address == 1024 + 4 * 128 + 4 * 16);
    CHECK(pieces[31].shared_address == 1024 + 6 * 128 + 1 * 16);
}

TEST_CASE("an adding store rounds each sum to the element type and leaves the rest alone") {
    const auto add = [](ElementType type, DataType rounding, double old, double addend) {
        Tensor tensor(type, Swizzle::none, {9, 2}, {16, 1});
        Shared shared;
        const std::vector<Tensor::Sixteen> before = tensor.storage;
        const std::size_t size = element_bytes(type);
        const auto put = [&](std::byte* place, double value) {
            if (type == ElementType::fp32) {
                const auto exact = static_cast<float>(value);
                std::memcpy(place, &exact, size);
            } else {
                const std::uint16_t bits = backlight::to_bits(rounding, value);
                std::memcpy(place, &bits, size);
            }
        };
        for (std::size_t i = 0; i < 16; ++i) {
            put(shared.window.at(window_base) + i * size, addend);
        }
        for (std::size_t i = 0; i < 9; ++i) {
            put(tensor.content.address + i * size, old);
        }
        reduce_add(type, pieces_at(tensor.content, {0, 0}, window_base), shared.window);
        const auto* bytes = reinterpret_cast<const std::byte*>(before.data());
        CHECK(std::memcmp(bytes + 9 * size, tensor.content.address + 9 * size,
                          16 * before.size() - 9 * size) == 0);
        double sum = 0;
        for (std::size_t i = 0; i < 9; ++i) {
            double element = 0;
            if (type == ElementType::fp32) {
                float value = 0;
                std::memcpy(&value, tensor.content.address + i * size, size);
                element = static_cast<double>(value);
            } else {
                std::uint16_t bits = 0;
                std::memcpy(&bits, tensor.content.address + i * size, size);
                element = static_cast<double>(backlight::from_bits(rounding, bits));
            }
            CHECK((i == 0 || element == sum));
            sum = element;
        }
        return sum;
    };
    CHECK(add(ElementType::fp32, DataType::bf16, 1.5, 2.25) == 3.75);
    CHECK(add(ElementType::fp32, DataType::bf16, 0x1p24, 1) == 0x1p24);
    CHECK(add(ElementType::bf16, DataType::bf16, 256, 1) == 256);
    CHECK(add(ElementType::bf16, DataType::bf16, 256, 3) == 260);
    CHECK(add(ElementType::fp16, DataType::fp16, 256, 1) == 257);
    CHECK(add(ElementType::fp16, DataType::fp16, 2048, 1) == 2048);
    CHECK(add(ElementType::fp16, DataType::fp16, 65504, 65504) ==
          std::numeric_limits<double>::infinity());
}

TEST_CASE("additions of two threads to the same elements are all counted") {
    for (const ElementType type : {ElementType::fp32, ElementType::fp16}) {
        Tensor tensor(type, Swizzle::none, {8, 1}, {8, 1});
        std::memset(tensor.content.address, 0, 32);
        Shared shared;
        for (std::size_t i = 0; i < 8; ++i) {
            const float one = 1;
            const std::uint16_t one_half = backlight::to_bits(DataType::fp16, 1);
            std::memcpy(shared.window.at(window_base) + i * element_bytes(type),
                        type == ElementType::fp32 ? static_cast<const void*>(&one) : &one_half,
                        element_bytes(type));
        }
        const std::vector<CopyPiece> pieces = pieces_at(tensor.content, {0, 0}, window_base);
        const auto work = [&] {
            for (int i = 0; i < 1000; ++i) {
                reduce_add(type, pieces, shared.window);
            }
        };
        std::thread other(work);
        work();
        other.join();
        if (type == ElementType::fp32) {
            float sum = 0;
            std::memcpy(&sum, tensor.content.address + 28, sizeof(sum));
            CHECK(sum == 2000);
        } else {
            std::uint16_t sum = 0;
            std::memcpy(&sum, tensor.content.address + 14, sizeof(sum));
            CHECK(backlight::from_bits(DataType::fp16, sum) == 2000);
        }
    }
}

TEST_CASE("a box's first coordinate is a multiple of 16 bytes") {
    const Tensor halves(ElementType::bf16, Swizzle::none, {128, 8}, {32, 8});
    const Tensor floats(ElementType::fp32, Swizzle::none, {128, 8}, {32, 8});
    const auto check = [](const Tensor& tensor, std::int32_t x) {
        const std::array<std::int32_t, 2> coordinates{x, -1};
        return check_coordinates(tensor.content, coordinates);
    };
    CHECK(check(halves, -8) == "");
    CHECK(check(floats, -4) == "");
    CHECK(check(halves, 5) ==
          "the box's first coordinate is 5 (10 bytes): it must be a multiple of 16 bytes");
    CHECK(check(halves, -4) != "");
    CHECK(check(floats, -3) != "");
}

TEST_CASE("a box's shared address is aligned for its swizzle and inside shared memory") {
    Shared shared;
    const auto check = [&](Swizzle swizzle, std::uint32_t address) {
        const Tensor tensor(ElementType::bf16, swizzle, {128, 64}, {16, 8});
        return check_shared_address(tensor.content, address, shared.window);
    };
    CHECK(check(Swizzle::none, 1024 + 128) == "");
    CHECK(check(Swizzle::none, 1024 + 64) ==
          "the box's shared address is 0x440: it must be a multiple of 128 bytes");
    CHECK(check(Swizzle::bytes_32, 1024 + 256) == "");
    CHECK(check(Swizzle::bytes_32, 1024 + 128) ==
          "the box's shared address is 0x480: with a 32-byte swizzle it must be a multiple of 256 "
          "bytes, after which the pattern repeats");
    CHECK(check(Swizzle::bytes_64, 1024 + 512) == "");
    CHECK(check(Swizzle::bytes_64, 1024 + 256) != "");
    CHECK(check(Swizzle::bytes_128, 1024 + 1024) == "");
    CHECK(check(Swizzle::bytes_128, 1024 + 512) != "");

    const auto end = static_cast<std::uint32_t>(window_base + shared.bytes.size());
    CHECK(check(Swizzle::bytes_128, end - 1024) == "");
    CHECK(check(Swizzle::bytes_128, end) ==
          "the box's shared address is 0x18400 and its size 1024 bytes: the block's shared memory "
          "is 0x400 … 0x18400");
    CHECK(check(Swizzle::none, 0) != "");
    CHECK(check(Swizzle::none, 0xffffff80) != "");
}

TEST_CASE("a bulk copy moves whole 16-byte units between aligned addresses") {
    Shared shared;
    alignas(16) std::array<std::byte, 64> memory{};
    for (std::size_t i = 0; i < memory.size(); ++i) {
        memory[i] = static_cast<std::byte>(i + 1);
    }
    CHECK(check_bulk(window_base + 32, memory.data(), 48, shared.window) == "");
    load(bulk_pieces(window_base + 32, memory.data() + 16, 48), shared.window);
    CHECK(std::memcmp(shared.bytes.data() + 32, memory.data() + 16, 48) == 0);
    CHECK(shared.bytes[31] == untouched);
    CHECK(shared.bytes[80] == untouched);

    const auto check = [&](std::uint32_t address, const std::byte* global, std::uint32_t bytes) {
        return check_bulk(address, global, bytes, shared.window);
    };
    CHECK(check(window_base, memory.data(), 0) ==
          "the bulk copy's size is 0 bytes: it must be a positive multiple of 16");
    CHECK(check(window_base, memory.data(), 24).find("size is 24") != std::string::npos);
    CHECK(check(window_base + 8, memory.data(), 16).find("shared address is 0x408") !=
          std::string::npos);
    CHECK(check(window_base, memory.data() + 8, 16).find("global address") != std::string::npos);
    CHECK(check(window_base, nullptr, 16).find("not null") != std::string::npos);
    const auto end = static_cast<std::uint32_t>(window_base + shared.bytes.size());
    CHECK(check(end - 16, memory.data(), 16) == "");
    CHECK(check(end - 16, memory.data(), 32).find("shared memory is") != std::string::npos);
}
