#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <vector>

#include "conformance.hpp"
#include "harness.hpp"
#include "kernels/arguments.h"

namespace backlight::conformance {

namespace {

using tensor_map::Swizzle;

constexpr std::uint32_t threads = 128;
constexpr std::size_t m = 64;
constexpr std::size_t depth = 64;

/// A swizzle as a matrix descriptor numbers it, as a tensor map does, and the bytes of its rows.
struct SwizzleMode {
    int descriptor;
    Swizzle map;
    std::size_t row_bytes;
};
constexpr std::array swizzle_modes = {
    SwizzleMode{0, Swizzle::none, 16}, SwizzleMode{3, Swizzle::bytes_32, 32},
    SwizzleMode{2, Swizzle::bytes_64, 64}, SwizzleMode{1, Swizzle::bytes_128, 128}};

const char* name_of(OperandA a) {
    switch (a) {
        case OperandA::registers:
            return "A in registers";
        case OperandA::k_major:
            return "A K-major";
        case OperandA::mn_major:
            break;
    }
    return "A MN-major";
}

/// One operand, `outer` rows of A or columns of B, as [outer][depth].
class Operand {
  public:
    Operand(Runtime& runtime, DataType type, std::size_t outer, bool mn_major,
            const SwizzleMode& mode, std::uint32_t seed)
        : values_(small_integers(outer * depth, seed)),
          device_(runtime, to_elements(type, mn_major ? transposed(outer, mode) : values_)),
          map_(encoded_map(runtime, request(type, outer, mn_major, mode))) {}

    float at(std::size_t outer, std::size_t k) const { return values_[outer * depth + k]; }
    const void* data() const { return device_.data(); }
    const kernel::TensorMap& map() const { return map_; }

  private:
    /// Rows of the tensor hold whole panels, also where the operand does not fill the last.
    static std::size_t padded(std::size_t outer, const SwizzleMode& mode) {
        const std::size_t panel = mode.row_bytes / 2;
        return (outer + panel - 1) / panel * panel;
    }
    std::vector<float> transposed(std::size_t outer, const SwizzleMode& mode) const {
        const std::size_t columns = padded(outer, mode);
        std::vector<float> result(depth * columns, 3.0F);
        for (std::size_t k = 0; k < depth; ++k) {
            for (std::size_t i = 0; i < outer; ++i) {
                result[k * columns + i] = at(i, k);
            }
        }
        return result;
    }
    tensor_map::Request request(DataType type, std::size_t outer, bool mn_major,
                                const SwizzleMode& mode) const {
        const auto columns = static_cast<std::int64_t>(mn_major ? padded(outer, mode) : depth);
        const auto rows = static_cast<std::int64_t>(mn_major ? depth : outer);
        return {.address = device_.data(),
                .type = type == DataType::fp16 ? tensor_map::ElementType::fp16
                                               : tensor_map::ElementType::bf16,
                .rank = 2,
                .extents = {columns, rows},
                .strides = {columns},
                .box = {static_cast<std::int64_t>(mode.row_bytes / 2), rows},
                .swizzle = mode.map};
    }

    std::vector<float> values_;
    DeviceArray device_;
    kernel::TensorMap map_;
};

struct Product {
    DataType type = DataType::bf16;
    OperandA a = OperandA::k_major;
    std::size_t n = 64;
    bool b_mn_major = false;
    SwizzleMode mode = swizzle_modes.back();
    bool accumulate = false;
};

void check_product(Runtime& runtime, const ConformanceKernel& kernel, const Product& product) {
    const std::size_t n = product.n;
    const Operand a(runtime, product.type, m, product.a == OperandA::mn_major, product.mode, 1);
    const Operand b(runtime, product.type, n, product.b_mn_major, product.mode, 2);
    const std::vector<float> before = small_integers(m * n, 3);
    const DeviceArray before_device(runtime, before);
    const DeviceArray d(runtime, std::vector<float>(before.size(), -1.0F));
    kernel.run(1, threads,
               kernel::WgmmaProductArguments{.a = a.map(),
                                             .b = b.map(),
                                             .a_rows = a.data(),
                                             .before = before_device.data<float>(),
                                             .d = d.data<float>(),
                                             .n = static_cast<int>(n),
                                             .b_mn_major = product.b_mn_major,
                                             .swizzle = product.mode.descriptor,
                                             .accumulate = product.accumulate});
    std::vector<float> expected(before.size(), 0);
    for (std::size_t row = 0; row < m; ++row) {
        for (std::size_t column = 0; column < n; ++column) {
            const std::size_t place = row * n + column;
            float sum = product.accumulate ? before[place] : 0.0F;
            for (std::size_t k = 0; k < depth; ++k) {
                sum += a.at(row, k) * b.at(column, k);
            }
            expected[place] = sum;
        }
    }
    check_equal(d.read<float>(), expected,
                fmt::format("n = {}, {}, B {}-major, rows of {} bytes, {}", n, name_of(product.a),
                            product.b_mn_major ? "MN" : "K", product.mode.row_bytes,
                            product.accumulate ? "accumulated" : "from zero"));
}

}  // namespace

void check_wgmma(Runtime& runtime) {
    if (!has_wgmma(runtime)) {
        return;
    }
    for (const OperandA a : {OperandA::registers, OperandA::k_major, OperandA::mn_major}) {
        const ConformanceKernel kernel(runtime, wgmma_product(DataType::bf16, a));
        bool accumulate = false;
        for (const std::size_t n : {32, 64, 96, 128, 192, 256}) {
            for (const bool b_mn_major : {false, true}) {
                for (const SwizzleMode& mode : swizzle_modes) {
                    check_product(runtime, kernel,
                                  {.a = a,
                                   .n = n,
                                   .b_mn_major = b_mn_major,
                                   .mode = mode,
                                   .accumulate = accumulate});
                    accumulate = !accumulate;
                }
                // Each swizzle meets both in turn.
                accumulate = !accumulate;
            }
        }
    }
}

void check_wgmma_fp16(Runtime& runtime) {
    if (!has_wgmma(runtime)) {
        return;
    }
    for (const OperandA a : {OperandA::registers, OperandA::k_major, OperandA::mn_major}) {
        const ConformanceKernel kernel(runtime, wgmma_product(DataType::fp16, a));
        for (const bool b_mn_major : {false, true}) {
            check_product(
                runtime, kernel,
                {.type = DataType::fp16, .a = a, .b_mn_major = b_mn_major, .accumulate = true});
        }
    }
}

void check_wgmma_groups(Runtime& runtime) {
    if (!has_wgmma(runtime)) {
        return;
    }
    const ConformanceKernel kernel(runtime, wgmma_groups());
    for (const SwizzleMode& mode : swizzle_modes) {
        check_product(runtime, kernel, {.mode = mode});
    }
}

}  // namespace backlight::conformance
