// How fast the tensor cores work through mma.sync, as it is and repeated (mma_repeats.cuh): a loop
// of independent products and nothing else.
#include "arguments/measurement.h"
#include "mma_repeats.cuh"
#include "primitives/conversion.cuh"
#include "primitives/mma.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using Element = specialisation::Element;

extern "C" __global__ void __launch_bounds__(tensor_rate_warps* warp_size, 1)
    tensor_rate(const __grid_constant__ TensorRateArguments arguments) {
    // Numbers that differ from lane to lane, as those of a real product: zeros would take less
    // power.
    const float number = static_cast<float>(threadIdx.x % warp_size) * 0x1p-8f;
    OperandRegister a[4];
    OperandRegister b[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        a[i] = pack<Element>(0x1p-4f - number, number * static_cast<float>(i + 1));
    }
    b[0] = pack<Element>(number, -number);
    b[1] = pack<Element>(-0x1p-5f, number);
    AccumulatorRegister sums[tensor_rate_products][4] = {};

    __syncthreads();
    const int64_t start = clock64();
#pragma unroll 1
    for (int i = 0; i < arguments.iterations; ++i) {
#pragma unroll
        for (int product = 0; product < tensor_rate_products; ++product) {
            mma_m16n8k16<Element>(sums[product], a, b[0], b[1]);
        }
        repeat_products<tensor_rate_products>(sums, a);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arguments.cycles[blockIdx.x] = clock64() - start;
    }

    float total = 0;
#pragma unroll
    for (int product = 0; product < tensor_rate_products; ++product) {
        total += sums[product][0] + sums[product][1] + sums[product][2] + sums[product][3];
    }
    arguments.sums[blockIdx.x * (tensor_rate_warps * warp_size) + threadIdx.x] = total;
}

}  // namespace backlight::kernel
