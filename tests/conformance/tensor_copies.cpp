#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "conformance.hpp"
#include "half_types.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

using tensor_map::ElementType;
using tensor_map::Swizzle;

constexpr std::uint32_t threads = 128;
constexpr std::size_t rank_limit = 5;
using Index = std::array<std::int64_t, rank_limit>;

/// A tensor and a box of it; dimensions from `rank` on count 1.
struct Shape {
    ElementType type;
    int rank;
    Index extents;
    Index box;
    Swizzle swizzle;
    /// Of boxes to be copied: within the tensor, across its bounds, and out of it. The first is a
    /// multiple of 16 bytes: the hardware knows no other place for a row to start.
    std::vector<std::array<int, rank_limit>> coordinates;
};

const std::vector<Shape>& shapes() {
    static const std::vector<Shape> list = {
        {ElementType::fp32,
         1,
         {100, 1, 1, 1, 1},
         {32, 1, 1, 1, 1},
         Swizzle::none,
         {{16}, {-8}, {92}, {-40}, {200}, {100}}},
        {ElementType::bf16,
         2,
         {72, 9, 1, 1, 1},
         {24, 5, 1, 1, 1},
         Swizzle::none,
         {{8, 2}, {-8, -2}, {64, 7}, {-24, 0}}},
        {ElementType::bf16,
         2,
         {96, 40, 1, 1, 1},
         {64, 16, 1, 1, 1},
         Swizzle::bytes_128,
         {{32, 24}, {-16, -4}, {80, 35}, {-56, 39}, {0, 40}}},
        {ElementType::fp32,
         2,
         {64, 12, 1, 1, 1},
         {32, 10, 1, 1, 1},
         Swizzle::bytes_128,
         {{0, 0}, {36, 5}, {-28, -9}}},
        {ElementType::fp16,
         3,
         {40, 10, 6, 1, 1},
         {32, 4, 3, 1, 1},
         Swizzle::bytes_64,
         {{0, 0, 0}, {8, 3, 2}, {-8, -1, -2}, {16, 8, 4}}},
        {ElementType::bf16,
         4,
         {64, 20, 3, 2, 1},
         {16, 8, 2, 2, 1},
         Swizzle::bytes_32,
         {{48, 4, 1, 0}, {-8, -5, -1, -1}, {56, 16, 2, 1}, {0, 0, 3, 0}}},
        {ElementType::fp32,
         5,
         {20, 6, 4, 3, 2},
         {8, 3, 2, 2, 2},
         Swizzle::bytes_32,
         {{4, 1, 1, 0, 0}, {-4, -1, -1, -1, -1}, {16, 4, 3, 2, 1}, {0, 0, 0, 0, 2}}},
    };
    return list;
}

/// Where boxes may be written to: the hardware stops a store or reduction that starts before the
/// tensor (measured on an H200), and goes on with one that ends beyond it.
std::vector<std::array<int, rank_limit>> writable_coordinates(const Shape& shape) {
    std::vector<std::array<int, rank_limit>> writable;
    for (const auto& coordinates : shape.coordinates) {
        if (std::ranges::all_of(coordinates, [](int coordinate) { return coordinate >= 0; })) {
            writable.push_back(coordinates);
        }
    }
    return writable;
}

std::size_t bytes_of_element(ElementType type) {
    return static_cast<std::size_t>(tensor_map::element_bytes(type));
}

std::size_t swizzle_bytes(Swizzle swizzle) {
    switch (swizzle) {
        case Swizzle::bytes_32:
            return 32;
        case Swizzle::bytes_64:
            return 64;
        case Swizzle::bytes_128:
            return 128;
        case Swizzle::none:
            break;
    }
    return 0;
}

/// Bytes from one row of the box to the next in shared memory.
std::size_t pitch_of(const Shape& shape) {
    const std::size_t row = static_cast<std::size_t>(shape.box[0]) * bytes_of_element(shape.type);
    return std::max(row, swizzle_bytes(shape.swizzle));
}

std::size_t rows_of(const Shape& shape) {
    return static_cast<std::size_t>(shape.box[1] * shape.box[2] * shape.box[3] * shape.box[4]);
}

/// The byte of shared memory where a swizzled tile keeps its byte `offset`.
std::size_t swizzled(Swizzle swizzle, std::size_t offset) {
    switch (swizzle) {
        case Swizzle::bytes_32:
            return offset ^ (offset >> 7 & 1) << 4;
        case Swizzle::bytes_64:
            return offset ^ (offset >> 7 & 3) << 4;
        case Swizzle::bytes_128:
            return offset ^ (offset >> 7 & 7) << 4;
        case Swizzle::none:
            break;
    }
    return offset;
}

/// A tensor's bytes, with gaps between its rows that belong to no element.
class Tensor {
  public:
    explicit Tensor(const Shape& shape) : shape_(shape) {
        const auto unit = static_cast<std::int64_t>(16 / bytes_of_element(shape.type));
        strides_[0] = 1;
        strides_[1] = (shape.extents[0] + unit - 1) / unit * unit + unit;
        for (std::size_t i = 2; i < rank_limit; ++i) {
            strides_[i] = strides_[i - 1] * shape.extents[i - 1];
        }
        bytes_.resize(
            static_cast<std::size_t>(strides_[4] * shape.extents[4]) * bytes_of_element(shape.type),
            0x5b);
    }

    std::vector<std::uint8_t>& bytes() { return bytes_; }
    std::uint8_t* at(const Index& index) {
        std::int64_t element = 0;
        for (std::size_t i = 0; i < rank_limit; ++i) {
            element += index[i] * strides_[i];
        }
        return bytes_.data() + static_cast<std::size_t>(element) * bytes_of_element(shape_.type);
    }
    bool contains(const Index& index) const {
        for (std::size_t i = 0; i < rank_limit; ++i) {
            if (index[i] < 0 || index[i] >= shape_.extents[i]) {
                return false;
            }
        }
        return true;
    }

    tensor_map::Request request(const void* address) const {
        return {.address = address,
                .type = shape_.type,
                .rank = shape_.rank,
                .extents = shape_.extents,
                .strides = {strides_[1], strides_[2], strides_[3], strides_[4]},
                .box = shape_.box,
                .swizzle = shape_.swizzle};
    }

  private:
    Shape shape_;
    Index strides_{};
    std::vector<std::uint8_t> bytes_;
};

/// Calls `visit` with each element of the box at `coordinates`: its index in the tensor, which may
/// be out of bounds, and its byte of shared memory.
void for_each_element(const Shape& shape, const std::array<int, rank_limit>& coordinates,
                      const std::function<void(const Index&, std::size_t)>& visit) {
    std::size_t row = 0;
    Index i{};
    for (i[4] = 0; i[4] < shape.box[4]; ++i[4]) {
        for (i[3] = 0; i[3] < shape.box[3]; ++i[3]) {
            for (i[2] = 0; i[2] < shape.box[2]; ++i[2]) {
                for (i[1] = 0; i[1] < shape.box[1]; ++i[1], ++row) {
                    for (i[0] = 0; i[0] < shape.box[0]; ++i[0]) {
                        Index index{};
                        for (std::size_t d = 0; d < rank_limit; ++d) {
                            index[d] = coordinates[d] + i[d];
                        }
                        const std::size_t offset =
                            row * pitch_of(shape) +
                            static_cast<std::size_t>(i[0]) * bytes_of_element(shape.type);
                        visit(index, swizzled(shape.swizzle, offset));
                    }
                }
            }
        }
    }
}

std::string describe(const Shape& shape, const std::array<int, rank_limit>& coordinates) {
    return fmt::format("rank {}, box {} of {} bytes an element, {}-byte swizzle, at {}", shape.rank,
                       fmt::join(shape.box, "×"), bytes_of_element(shape.type),
                       swizzle_bytes(shape.swizzle), fmt::join(coordinates, " "));
}

/// Small whole numbers in the shape's type, one an element, whose sums are exact.
std::vector<std::uint8_t> numbers(ElementType type, std::size_t count, std::uint32_t seed) {
    const std::vector<float> values = small_integers(count, seed);
    std::vector<std::uint8_t> bytes(count * bytes_of_element(type));
    if (type == ElementType::fp32) {
        std::memcpy(bytes.data(), values.data(), bytes.size());
    } else {
        const auto elements =
            to_elements(type == ElementType::fp16 ? DataType::fp16 : DataType::bf16, values);
        std::memcpy(bytes.data(), elements.data(), bytes.size());
    }
    return bytes;
}

float value_at(ElementType type, const std::uint8_t* element) {
    if (type == ElementType::fp32) {
        float value = 0;
        std::memcpy(&value, element, sizeof(value));
        return value;
    }
    std::uint16_t bits = 0;
    std::memcpy(&bits, element, sizeof(bits));
    return from_bits(type == ElementType::fp16 ? DataType::fp16 : DataType::bf16, bits);
}

void set_value(ElementType type, std::uint8_t* element, float value) {
    if (type == ElementType::fp32) {
        std::memcpy(element, &value, sizeof(value));
        return;
    }
    const std::uint16_t bits = to_bits(type == ElementType::fp16 ? DataType::fp16 : DataType::bf16,
                                       static_cast<double>(value));
    std::memcpy(element, &bits, sizeof(bits));
}

/// Fills every element of the tensor, not the gaps.
void fill(const Shape& shape, Tensor& tensor, const std::vector<std::uint8_t>& elements) {
    std::size_t next = 0;
    Shape whole = shape;
    whole.box = shape.extents;
    for_each_element(whole, {}, [&](const Index& index, std::size_t) {
        std::memcpy(tensor.at(index), elements.data() + next, bytes_of_element(shape.type));
        next += bytes_of_element(shape.type);
    });
}

std::size_t element_count(const Shape& shape) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape.extents) {
        count *= static_cast<std::size_t>(extent);
    }
    return count;
}

std::vector<std::uint8_t> scrambled_bytes(std::size_t count, std::uint32_t seed) {
    std::vector<std::uint8_t> bytes(count);
    for (std::size_t i = 0; i < count; ++i) {
        bytes[i] =
            static_cast<std::uint8_t>(scrambled(static_cast<std::uint32_t>(i) + (seed << 16)));
    }
    return bytes;
}

kernel::TensorCopyArguments arguments_of(const Shape& shape,
                                         const std::array<int, rank_limit>& coordinates,
                                         const kernel::TensorMap& map,
                                         const DeviceArray& shared_before) {
    kernel::TensorCopyArguments arguments{};
    arguments.map = map;
    arguments.shared_before = shared_before.data();
    arguments.rank = shape.rank;
    std::copy(coordinates.begin(), coordinates.end(), arguments.coordinates);
    arguments.shared_bytes = static_cast<int>(rows_of(shape) * pitch_of(shape));
    arguments.transaction_bytes = static_cast<int>(
        rows_of(shape) * static_cast<std::size_t>(shape.box[0]) * bytes_of_element(shape.type));
    return arguments;
}

void check_load(Runtime& runtime, const ConformanceKernel& kernel, const Shape& shape) {
    Tensor tensor(shape);
    fill(shape, tensor, scrambled_bytes(element_count(shape) * bytes_of_element(shape.type), 1));
    const DeviceArray device(runtime, tensor.bytes());
    const kernel::TensorMap map = encoded_map(runtime, tensor.request(device.data()));
    const std::vector<std::uint8_t> before(rows_of(shape) * pitch_of(shape), 0xa7);
    const DeviceArray shared_before(runtime, before);
    for (const auto& coordinates : shape.coordinates) {
        const DeviceArray shared_after(runtime, before);
        kernel::TensorCopyArguments arguments =
            arguments_of(shape, coordinates, map, shared_before);
        arguments.shared_after = shared_after.data();
        kernel.run(1, threads, arguments);

        // Bytes between rows that are narrower than the swizzle are nobody's.
        std::vector<std::uint8_t> got = shared_after.read<std::uint8_t>();
        std::vector<std::uint8_t> expected = got;
        for_each_element(shape, coordinates, [&](const Index& index, std::size_t offset) {
            if (tensor.contains(index)) {
                std::memcpy(expected.data() + offset, tensor.at(index),
                            bytes_of_element(shape.type));
            } else {
                std::memset(expected.data() + offset, 0, bytes_of_element(shape.type));
            }
        });
        check_equal(got, expected, describe(shape, coordinates));
    }
}

}  // namespace

void check_tensor_loads(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, tensor_copy("tensor_load"));
    for (const Shape& shape : shapes()) {
        check_load(runtime, kernel, shape);
    }
}

void check_tensor_loads_of_narrow_boxes(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, tensor_copy("tensor_load"));
    for (const Swizzle swizzle : {Swizzle::bytes_128, Swizzle::bytes_64, Swizzle::bytes_32}) {
        check_load(runtime, kernel,
                   {ElementType::bf16,
                    2,
                    {64, 24, 1, 1, 1},
                    {8, 16, 1, 1, 1},
                    swizzle,
                    {{8, 4}, {56, -3}, {-8, 20}}});
    }
}

void check_tensor_stores(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, tensor_copy("tensor_store"));
    for (const Shape& shape : shapes()) {
        Tensor tensor(shape);
        const std::vector<std::uint8_t> before = tensor.bytes();
        const std::vector<std::uint8_t> shared =
            scrambled_bytes(rows_of(shape) * pitch_of(shape), 2);
        const DeviceArray shared_before(runtime, shared);
        for (const auto& coordinates : writable_coordinates(shape)) {
            const DeviceArray device(runtime, before);
            const kernel::TensorMap map = encoded_map(runtime, tensor.request(device.data()));
            kernel.run(1, threads, arguments_of(shape, coordinates, map, shared_before));

            tensor.bytes() = before;
            for_each_element(shape, coordinates, [&](const Index& index, std::size_t offset) {
                if (tensor.contains(index)) {
                    std::memcpy(tensor.at(index), shared.data() + offset,
                                bytes_of_element(shape.type));
                }
            });
            check_equal(device.read<std::uint8_t>(), tensor.bytes(), describe(shape, coordinates));
        }
    }
}

void check_tensor_reductions(Runtime& runtime) {
    const ConformanceKernel kernel(runtime, tensor_copy("tensor_reduce_add"));
    for (const Shape& shape : shapes()) {
        Tensor tensor(shape);
        fill(shape, tensor, numbers(shape.type, element_count(shape), 3));
        const std::vector<std::uint8_t> before = tensor.bytes();
        const std::vector<std::uint8_t> shared =
            numbers(shape.type, rows_of(shape) * pitch_of(shape) / bytes_of_element(shape.type), 4);
        const DeviceArray shared_before(runtime, shared);
        for (const auto& coordinates : writable_coordinates(shape)) {
            const DeviceArray device(runtime, before);
            const kernel::TensorMap map = encoded_map(runtime, tensor.request(device.data()));
            kernel.run(1, threads, arguments_of(shape, coordinates, map, shared_before));

            tensor.bytes() = before;
            for_each_element(shape, coordinates, [&](const Index& index, std::size_t offset) {
                if (tensor.contains(index)) {
                    set_value(shape.type, tensor.at(index),
                              value_at(shape.type, tensor.at(index)) +
                                  value_at(shape.type, shared.data() + offset));
                }
            });
            check_equal(device.read<std::uint8_t>(), tensor.bytes(), describe(shape, coordinates));
        }
    }
}

}  // namespace backlight::conformance
