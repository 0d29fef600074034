// What tests of plans look at in a launch's arguments.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>

#include "arguments/attention_backward.h"
#include "backlight/tensors.hpp"
#include "test_support.hpp"

namespace backlight::test {

inline std::uint64_t number(const void* pointer) {
    return reinterpret_cast<std::uint64_t>(pointer);
}

inline fault::EncodedMap decoded(const kernel::TensorMap& map) {
    fault::EncodedMap result{};
    std::memcpy(&result, map.opaque, sizeof(result));
    return result;
}

/// Of a tensor of (2, 3, seqlen, 128) elements, whose rows are copied `rows` at a time.
inline void check_map(const fault::EncodedMap& map, const ConstTensorView& view,
                      std::int64_t seqlen, std::uint32_t rows) {
    CHECK(map.encoded == 1);
    CHECK(map.rank == 4);
    CHECK(map.address == number(view.data));
    CHECK(map.extents[0] == 128);
    CHECK(map.extents[1] == static_cast<std::uint64_t>(seqlen));
    CHECK(map.extents[2] == 3);
    CHECK(map.extents[3] == 2);
    CHECK(map.stride_bytes[0] == static_cast<std::uint64_t>(view.stride_seqlen) * 2);
    CHECK(map.stride_bytes[1] == static_cast<std::uint64_t>(view.stride_head) * 2);
    CHECK(map.stride_bytes[2] == static_cast<std::uint64_t>(view.stride_batch) * 2);
    CHECK(map.box[0] == 64);
    CHECK(map.box[1] == rows);
    CHECK(map.box[2] == 1);
    CHECK(map.box[3] == 1);
    for (const std::uint8_t stride : map.element_strides) {
        CHECK(stride == 1);
    }
    CHECK(map.data_type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    CHECK(map.interleave == CU_TENSOR_MAP_INTERLEAVE_NONE);
    CHECK(map.swizzle == CU_TENSOR_MAP_SWIZZLE_128B);
    CHECK(map.out_of_bounds_fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace backlight::test
