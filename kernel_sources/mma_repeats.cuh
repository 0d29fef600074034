// For measuring alone (docs/emulated_tensor_rate.md): products that compute nothing, so that the
// tensor cores are as long at work as slower ones would be.
#pragma once

#include "primitives/mma.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

namespace specialisation {
// A specialisation that is to be slowed declares its own, which is found before this one.
namespace unless_declared {
constexpr int mma_repeats = 1;
}
using namespace unless_declared;
}  // namespace specialisation

static_assert(specialisation::mma_repeats >= 1, "one of them is the product itself");

/// Adds A · 0 to a sum. Sums begin as +0, and so none of them is ever the -0 that this would
/// change.
__device__ __forceinline__ void multiply_by_zeros(AccumulatorRegister (&sum)[4],
                                                  const OperandRegister (&a)[4]) {
    const OperandRegister zeros = 0;
    mma_m16n8k16<specialisation::Element>(sum, a, zeros, zeros);
}

/// Behind `products` products of A: as many with zeros for each repeat but the first. `idle` are
/// sums that the next products do not wait for; they are taken in turn, from number `first` on.
template <int products, int fragments>
__device__ __forceinline__ void repeat_products(AccumulatorRegister (&idle)[fragments][4],
                                                const OperandRegister (&a)[4], int first = 0) {
#pragma unroll
    for (int i = 0; i < (specialisation::mma_repeats - 1) * products; ++i) {
        multiply_by_zeros(idle[(first + i) % fragments], a);
    }
}

}  // namespace backlight::kernel
