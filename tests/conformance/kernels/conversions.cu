// Rounding to 16-bit elements and back, and the base-2 exponential.
#include "arguments/attention_backward.h"
#include "primitives/conversion.cuh"
#include "primitives/exponential.cuh"
#include "primitives/types.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using Element = specialisation::Element;

constexpr int threads = 128;

extern "C" __global__ void __launch_bounds__(threads)
    conversions(const __grid_constant__ ConversionArguments arguments) {
    const int i = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
    if (i >= arguments.count) {
        return;
    }
    const float number = arguments.numbers[i];
    const uint32_t packed = pack<Element>(number, -number);
    const float2 pair = unpack<Element>(packed);
    arguments.packed[i] = packed;
    arguments.unpacked[2 * i] = pair.x;
    arguments.unpacked[2 * i + 1] = pair.y;
    arguments.exponentials[i] = exp2_approximate(number);
}

}  // namespace backlight::kernel
