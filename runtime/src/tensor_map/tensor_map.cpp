#include "tensor_map/tensor_map.hpp"

#include <fmt/format.h>

#include "backlight/error.hpp"

namespace backlight::tensor_map {

namespace {

std::int64_t swizzle_bytes(Swizzle swizzle) {
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

/// What a dimension is called in a message.
std::string dimension_name(const Request& request, std::size_t dimension) {
    static constexpr std::array<std::string_view, 4> attention = {"head_dim", "seqlen", "head",
                                                                  "batch"};
    return request.rank == static_cast<int>(attention.size())
               ? std::string(attention[dimension])
               : fmt::format("dimension {}", dimension);
}

[[noreturn]] void refuse(std::string_view operand, const std::string& what) {
    throw Error(ErrorCode::invalid_argument, fmt::format("tensor map of {}: {}", operand, what));
}

}  // namespace

void check(const Request& request, std::string_view operand) {
    if (request.rank < 1 || request.rank > rank_limit) {
        refuse(operand, fmt::format("the rank is {}: it must be 1 … {}", request.rank, rank_limit));
    }
    const auto rank = static_cast<std::size_t>(request.rank);
    const std::int64_t bytes = element_bytes(request.type);
    const auto address = reinterpret_cast<std::uintptr_t>(request.address);
    if (address == 0) {
        refuse(operand, "the address is null");
    }
    if (address % 16 != 0) {
        refuse(operand,
               fmt::format("the address is {:#x}: it must be a multiple of 16 bytes", address));
    }
    for (std::size_t i = 0; i < rank; ++i) {
        if (request.extents[i] < 1 || request.extents[i] > (std::int64_t{1} << 32)) {
            refuse(operand, fmt::format("the {} extent is {}: it must be 1 … 2^32",
                                        dimension_name(request, i), request.extents[i]));
        }
        if (request.box[i] < 1 || request.box[i] > 256) {
            refuse(operand, fmt::format("the box has {} along {}: it must be 1 … 256",
                                        request.box[i], dimension_name(request, i)));
        }
    }
    for (std::size_t i = 0; i + 1 < rank; ++i) {
        const std::int64_t stride = request.strides[i];
        // Compared in elements: the product with the element size cannot overflow then.
        // Of 0, which broadcasts, the documentation says nothing; drivers take it.
        if (stride < 0 || stride >= (std::int64_t{1} << 40) / bytes) {
            refuse(operand, fmt::format("the {} stride is {} elements: it must be 0 or more and "
                                        "below 2^40 bytes",
                                        dimension_name(request, i + 1), stride));
        }
        if (stride * bytes % 16 != 0) {
            refuse(operand, fmt::format("the {} stride is {} elements ({} bytes): it must be a "
                                        "multiple of 16 bytes",
                                        dimension_name(request, i + 1), stride, stride * bytes));
        }
    }
    const std::int64_t inner_bytes = request.box[0] * bytes;
    if (inner_bytes % 16 != 0) {
        refuse(operand, fmt::format("a row of the box has {} bytes: it must be a multiple of 16",
                                    inner_bytes));
    }
    const std::int64_t limit = swizzle_bytes(request.swizzle);
    if (limit != 0 && inner_bytes > limit) {
        refuse(operand, fmt::format("a row of the box has {} bytes: with a {}-byte swizzle it must "
                                    "have at most {}",
                                    inner_bytes, limit, limit));
    }
}

}  // namespace backlight::tensor_map
