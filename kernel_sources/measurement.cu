// What a measurement needs around the kernels under test: random inputs, conversion to and from
// fp32, a comparison bit by bit, and something that keeps the GPU busy.
#include "arguments/measurement.h"
#include "primitives/conversion.cuh"
#include "primitives/global_counter.cuh"
#include "primitives/types.cuh"

namespace backlight::kernel {

/// A number from the front of a 16-bit element.
__device__ __forceinline__ float load_element(const void* base, int64_t index, ElementType type) {
    const uint32_t bits = static_cast<const uint16_t*>(base)[index];
    return type == element_bf16 ? unpack<bf16>(bits).x : unpack<fp16>(bits).x;
}

__device__ __forceinline__ void store_element(void* base, int64_t index, ElementType type,
                                              float value) {
    if (type == element_fp32) {
        static_cast<float*>(base)[index] = value;
        return;
    }
    const uint32_t bits = type == element_bf16 ? pack<bf16>(value, 0) : pack<fp16>(value, 0);
    static_cast<uint16_t*>(base)[index] = static_cast<uint16_t>(bits);
}

/// The finaliser of SplitMix64: a bijection that mixes all 64 bits.
__device__ __forceinline__ uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/// Uniform in (0, 1]: 24 bits, which a float holds exactly, and never the 0 that has no logarithm.
__device__ __forceinline__ float uniform(uint32_t bits) {
    return static_cast<float>((bits >> 8) + 1) * (1.0f / 16777216.0f);
}

extern "C" __global__ void __launch_bounds__(measurement_threads)
    fill_normal(const __grid_constant__ FillNormalArguments arguments) {
    const int64_t pairs = (arguments.elements + 1) / 2;
    const int64_t pair = static_cast<int64_t>(blockIdx.x) * measurement_threads + threadIdx.x;
    if (pair >= pairs) {
        return;
    }
    // A counter, not a state: every pair is drawn from its own index. The seed is mixed first, so
    // that neighbouring seeds do not give shifted copies of one sequence.
    constexpr uint64_t golden_ratio = 0x9e3779b97f4a7c15ull;
    const uint64_t bits =
        mix(mix(arguments.seed + golden_ratio) + static_cast<uint64_t>(pair + 1) * golden_ratio);
    // Box and Muller: two uniform numbers to two independent normal ones.
    const float radius =
        arguments.scale * sqrtf(-2.0f * logf(uniform(static_cast<uint32_t>(bits))));
    float sine;
    float cosine;
    sincospif(2.0f * uniform(static_cast<uint32_t>(bits >> 32)), &sine, &cosine);
    store_element(arguments.out, 2 * pair, arguments.type, radius * cosine);
    if (2 * pair + 1 < arguments.elements) {
        store_element(arguments.out, 2 * pair + 1, arguments.type, radius * sine);
    }
}

/// Where element `index` of the contiguous tensor lies in the strided one.
__device__ __forceinline__ int64_t strided_index(const StridedCopyArguments& arguments,
                                                 int64_t index) {
    const int64_t column = index % arguments.head_dim;
    const int64_t flat_row = index / arguments.head_dim;
    const int64_t row = flat_row % arguments.seqlen;
    const int64_t batch_head = flat_row / arguments.seqlen;
    const int64_t head = batch_head % arguments.heads;
    const int64_t batch = batch_head / arguments.heads;
    return batch * arguments.strides.batch + head * arguments.strides.head +
           row * arguments.strides.seqlen + column;
}

extern "C" __global__ void __launch_bounds__(measurement_threads)
    to_float(const __grid_constant__ StridedCopyArguments arguments) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * measurement_threads + threadIdx.x;
    if (index < arguments.elements) {
        arguments.contiguous[index] =
            load_element(arguments.strided, strided_index(arguments, index), arguments.type);
    }
}

extern "C" __global__ void __launch_bounds__(measurement_threads)
    from_float(const __grid_constant__ StridedCopyArguments arguments) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * measurement_threads + threadIdx.x;
    if (index < arguments.elements) {
        store_element(arguments.strided, strided_index(arguments, index), arguments.type,
                      arguments.contiguous[index]);
    }
}

extern "C" __global__ void __launch_bounds__(measurement_threads)
    count_differences(const __grid_constant__ CountDifferencesArguments arguments) {
    const int64_t index = static_cast<int64_t>(blockIdx.x) * measurement_threads + threadIdx.x;
    if (index < arguments.words && arguments.left[index] != arguments.right[index]) {
        take_ticket(arguments.differences);
    }
}

extern "C" __global__ void __launch_bounds__(1)
    spin(const __grid_constant__ SpinArguments arguments) {
    const int64_t start = clock64();
    while (clock64() - start < arguments.cycles) {
    }
}

}  // namespace backlight::kernel
