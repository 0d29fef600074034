#include "attention/zero_gradients.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "attention/extents.hpp"
#include "gradient_values.hpp"

namespace backlight::attention {

namespace {

struct Dimension {
    std::int64_t extent;
    std::int64_t stride;  // in elements
};

void zero(device::Device& device, const TensorView& view, const Extents& extents,
          std::int64_t element_bytes, Stream stream) {
    if (extents.elements() == 0) {
        return;
    }
    std::array<Dimension, 3> dimensions = {{{extents.batch, view.stride_batch},
                                            {extents.heads, view.stride_head},
                                            {extents.seqlen, view.stride_seqlen}}};
    // Strides over a single index may be anything.
    std::ranges::sort(dimensions, {}, [](const Dimension& dimension) {
        return dimension.extent == 1 ? 0 : dimension.stride;
    });
    // As much as lies together without a gap is one row. Outputs do not overlap themselves.
    std::int64_t row = extents.head_dim;
    std::size_t next = 0;
    while (next < dimensions.size() &&
           (dimensions[next].extent == 1 || dimensions[next].stride == row)) {
        row *= dimensions[next++].extent;
    }
    std::array<Dimension, 3> outer = {{{1, row}, {1, 0}, {1, 0}}};
    std::copy(dimensions.begin() + static_cast<std::ptrdiff_t>(next), dimensions.end(),
              outer.begin());
    const auto bytes = [&](std::int64_t elements) {
        return static_cast<std::size_t>(elements * element_bytes);
    };
    for (std::int64_t i = 0; i < outer[2].extent; ++i) {
        for (std::int64_t j = 0; j < outer[1].extent; ++j) {
            auto* const first = static_cast<std::byte*>(view.data) +
                                bytes(i * outer[2].stride + j * outer[1].stride);
            if (outer[0].extent == 1) {
                device.fill(first, 0, bytes(row), stream);
            } else {
                device.fill_rows(first, bytes(outer[0].stride), 0, bytes(row),
                                 static_cast<std::size_t>(outer[0].extent), stream);
            }
        }
    }
}

}  // namespace

void zero_gradients(device::Device& device, const BackwardTensors& tensors,
                    const AttentionProblem& problem, Stream stream) {
    const auto element_bytes = static_cast<std::int64_t>(gradient_element_bytes(problem));
    zero(device, tensors.d_q, query_extents(problem), element_bytes, stream);
    zero(device, tensors.d_k, key_extents(problem), element_bytes, stream);
    zero(device, tensors.d_v, value_extents(problem), element_bytes, stream);
}

}  // namespace backlight::attention
