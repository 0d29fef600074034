#include "tensor_map/tensor_map.hpp"

#include <cstdint>

#include "test_support.hpp"

using backlight::ErrorCode;
using backlight::tensor_map::check;
using backlight::tensor_map::ElementType;
using backlight::tensor_map::Request;
using backlight::tensor_map::Swizzle;
using backlight::test::check_refused;

namespace {

Request valid() {
    return {.address = reinterpret_cast<const void*>(std::uintptr_t{1} << 40),
            .extents = {128, 4096, 16, 8},
            .strides = {128, 4096 * 128, 16 * 4096 * 128},
            .box = {64, 32, 1, 1},
            .swizzle = Swizzle::bytes_128};
}

void refused(const Request& request, std::initializer_list<std::string_view> fragments) {
    check_refused(ErrorCode::invalid_argument, fragments, [&] { check(request, "d_o"); });
}

}  // namespace

TEST_CASE("a tensor map that keeps every rule is accepted, up to each limit") {
    Request request = valid();
    CHECK_NOTHROW(check(request, "q"));
    request.extents[1] = std::int64_t{1} << 32;
    request.box[1] = 256;
    request.strides[2] = (std::int64_t{1} << 39) - 8;
    CHECK_NOTHROW(check(request, "q"));
    request.extents = {128, 1, 1, 1};
    CHECK_NOTHROW(check(request, "q"));
}

TEST_CASE("a tensor map's address is not null and a multiple of 16 bytes") {
    Request request = valid();
    request.address = nullptr;
    refused(request, {"d_o", "address is null"});
    request.address = reinterpret_cast<const void*>(std::uintptr_t{0x1008});
    refused(request, {"d_o", "0x1008", "multiple of 16 bytes"});
}

TEST_CASE("each extent of a tensor map is 1 to 2^32") {
    static constexpr const char* names[] = {"head_dim", "seqlen", "head", "batch"};
    for (std::size_t i = 0; i < 4; ++i) {
        for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-1},
                                       (std::int64_t{1} << 32) + 1, INT64_MAX, INT64_MIN}) {
            Request request = valid();
            request.extents[i] = bad;
            refused(request, {"d_o", names[i], "extent is " + std::to_string(bad), "1 … 2^32"});
        }
    }
}

TEST_CASE("each side of a tensor map's box is 1 to 256") {
    static constexpr const char* names[] = {"head_dim", "seqlen", "head", "batch"};
    for (std::size_t i = 0; i < 4; ++i) {
        for (const std::int64_t bad : {std::int64_t{0}, std::int64_t{-8}, std::int64_t{257}}) {
            Request request = valid();
            request.box[i] = bad;
            refused(request, {"d_o", names[i], "box has " + std::to_string(bad), "1 … 256"});
        }
    }
}

TEST_CASE("each stride of a tensor map is 0 or more, below 2^40 bytes, a multiple of 16 bytes") {
    static constexpr const char* names[] = {"seqlen", "head", "batch"};
    for (std::size_t i = 0; i < 3; ++i) {
        Request request = valid();
        for (const std::int64_t bad :
             {std::int64_t{-128}, std::int64_t{1} << 39, INT64_MAX, INT64_MIN}) {
            request.strides[i] = bad;
            refused(request, {"d_o", names[i], std::to_string(bad), "0 or more and below 2^40"});
        }
        request.strides[i] = 0;
        CHECK_NOTHROW(check(request, "d_o"));
        request.strides[i] = 132;
        refused(request, {"d_o", names[i], "132", "264 bytes", "multiple of 16 bytes"});
    }
}

TEST_CASE("a row of a tensor map's box is a multiple of 16 bytes and within its swizzle") {
    Request request = valid();
    request.box[0] = 12;
    refused(request, {"d_o", "24 bytes", "multiple of 16"});
    for (const auto& [swizzle, bytes] :
         {std::pair{Swizzle::bytes_32, 32}, {Swizzle::bytes_64, 64}, {Swizzle::bytes_128, 128}}) {
        request.swizzle = swizzle;
        request.box[0] = bytes / 2;
        CHECK_NOTHROW(check(request, "d_o"));
        request.box[0] = bytes / 2 + 8;
        refused(request, {"d_o", std::to_string(bytes) + "-byte swizzle", "at most"});
    }
    request.swizzle = Swizzle::none;
    request.box[0] = 256;
    CHECK_NOTHROW(check(request, "d_o"));
}

TEST_CASE("a tensor map has a rank of 1 to 5 and its unused dimensions do not count") {
    Request request = valid();
    for (const int bad : {0, -1, 6}) {
        request.rank = bad;
        refused(request, {"d_o", "rank is " + std::to_string(bad), "1 … 5"});
    }
    request = {.address = valid().address, .rank = 1, .extents = {100}, .box = {64}};
    CHECK_NOTHROW(check(request, "d_o"));
    request.rank = 2;
    refused(request, {"d_o", "dimension 1 extent is 0"});
    request = {.address = valid().address,
               .rank = 5,
               .extents = {64, 4, 3, 2, 5},
               .strides = {64, 256, 768, 1536},
               .box = {64, 4, 3, 2, 5}};
    CHECK_NOTHROW(check(request, "d_o"));
    request.strides[3] = 4;
    refused(request, {"d_o", "dimension 4 stride is 4", "8 bytes", "multiple of 16 bytes"});
}

TEST_CASE("a tensor map of fp32 counts four bytes an element") {
    Request request = valid();
    request.type = ElementType::fp32;
    request.box[0] = 32;
    CHECK_NOTHROW(check(request, "d_o"));
    request.box[0] = 36;
    refused(request, {"d_o", "144 bytes", "128-byte swizzle"});
    request.box[0] = 2;
    refused(request, {"d_o", "8 bytes", "multiple of 16"});
    request.box[0] = 32;
    request.strides[0] = 132;
    CHECK_NOTHROW(check(request, "d_o"));
    request.strides[0] = 130;
    refused(request, {"d_o", "130", "520 bytes", "multiple of 16 bytes"});
}
