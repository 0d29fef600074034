#include "emulation/tensor_map_content.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>

#include "test_support.hpp"

using backlight::ErrorCode;
using namespace backlight::emulation;
using backlight::kernel::TensorMap;
using backlight::tensor_map::Swizzle;
using backlight::test::check_refused;

namespace {

alignas(16) std::array<std::byte, 16> memory{};

TensorMapContent valid() {
    return {.address = memory.data(),
            .type = ElementType::bf16,
            .swizzle = Swizzle::bytes_128,
            .rank = 2,
            .extents = {128, 64},
            .strides = {256},
            .box = {64, 64}};
}

}  // namespace

TEST_CASE("an encoded tensor map is read back as it was up to each limit") {
    TensorMapContent content = valid();
    content.type = ElementType::fp32;
    content.rank = 5;
    content.extents = {12, 5, 4, 3, 6};
    content.strides = {64, 0, 1280, 4096};
    content.box = {16, 3, 2, 2, 256};
    TensorMap map{};
    encode(content, map);
    CHECK(decode(&map) == content);

    content = valid();
    content.rank = 2;
    content.extents = {std::int64_t{1} << 32, 1};
    content.strides = {(std::int64_t{1} << 40) - 16};
    content.box = {8, 256};
    content.type = ElementType::bf16;
    content.swizzle = Swizzle::none;
    encode(content, map);
    CHECK(decode(&map) == content);
}

TEST_CASE("bytes that are no tensor map are told apart from one") {
    TensorMap map{};
    encode(valid(), map);
    for (const std::size_t byte : {8U, 15U, 50U, 76U, 119U, 127U}) {
        TensorMap damaged = map;
        damaged.opaque[byte] = static_cast<unsigned char>(damaged.opaque[byte] ^ 1U);
        check_refused(ErrorCode::invalid_argument, {"overwritten in part", "checksum"},
                      [&] { decode(&damaged); });
    }
    TensorMap other{};
    check_refused(ErrorCode::invalid_argument, {"are no tensor map", "mark"},
                  [&] { decode(&other); });
    std::memset(&other, 0xff, sizeof(other));
    check_refused(ErrorCode::invalid_argument, {"are no tensor map"}, [&] { decode(&other); });
    check_refused(ErrorCode::invalid_argument, {"multiple of 64 bytes"}, [] { decode(nullptr); });
    TensorMap two[2] = {map, map};
    check_refused(ErrorCode::invalid_argument, {"multiple of 64 bytes"},
                  [&] { decode(two[0].opaque + 32); });
}

TEST_CASE("what no tensor map can say is not encoded") {
    const auto refused = [](std::initializer_list<std::string_view> fragments, auto&& change) {
        TensorMapContent content = valid();
        change(content);
        TensorMap map{};
        check_refused(ErrorCode::invalid_argument, fragments, [&] { encode(content, map); });
    };
    refused({"the address is 0x0"}, [](TensorMapContent& c) { c.address = nullptr; });
    refused({"the address is", "multiple of 16"}, [](TensorMapContent& c) { c.address += 8; });
    refused({"rank is 6", "1 … 5"}, [](TensorMapContent& c) { c.rank = 6; });
    refused({"rank is 0"}, [](TensorMapContent& c) { c.rank = 0; });
    refused({"extent of dimension 1 is 0"}, [](TensorMapContent& c) { c.extents[1] = 0; });
    refused({"extent of dimension 0 is 4294967297"},
            [](TensorMapContent& c) { c.extents[0] = (std::int64_t{1} << 32) + 1; });
    refused({"box has 257 along dimension 1"}, [](TensorMapContent& c) { c.box[1] = 257; });
    refused({"stride of dimension 1 is 24 bytes"}, [](TensorMapContent& c) { c.strides[0] = 24; });
    refused({"row of the box has 20 bytes"}, [](TensorMapContent& c) { c.box[0] = 10; });
    refused({"row of the box has 144 bytes", "128-byte swizzle"},
            [](TensorMapContent& c) { c.box[0] = 72; });
}

TEST_CASE("a request of the runtime becomes the content of its map in bytes") {
    CHECK(content_of({.address = memory.data(),
                      .type = backlight::tensor_map::ElementType::fp16,
                      .rank = 4,
                      .extents = {128, 4096, 16, 8},
                      .strides = {128, 524288, 8388608},
                      .box = {32, 64, 1, 1},
                      .swizzle = Swizzle::bytes_64}) ==
          TensorMapContent{.address = memory.data(),
                           .type = ElementType::fp16,
                           .swizzle = Swizzle::bytes_64,
                           .rank = 4,
                           .extents = {128, 4096, 16, 8},
                           .strides = {256, 1048576, 16777216},
                           .box = {32, 64, 1, 1}});
    // What lies beyond the rank is left out.
    CHECK(content_of({.address = memory.data(),
                      .type = backlight::tensor_map::ElementType::fp32,
                      .rank = 2,
                      .extents = {64, 100, 7},
                      .strides = {64, 7},
                      .box = {32, 8, 7},
                      .swizzle = Swizzle::none}) == TensorMapContent{.address = memory.data(),
                                                                     .type = ElementType::fp32,
                                                                     .swizzle = Swizzle::none,
                                                                     .rank = 2,
                                                                     .extents = {64, 100},
                                                                     .strides = {256},
                                                                     .box = {32, 8}});
}
