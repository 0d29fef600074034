// wgmma with operands of every layout, brought in by TMA.
#include "arguments/attention_backward.h"
#include "primitives/matrix_descriptor.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_memory.cuh"
#include "primitives/tma.cuh"
#include "primitives/types.cuh"
#include "primitives/wgmma.cuh"
#include "specialisation.cuh"

namespace backlight::kernel {

using Element = specialisation::Element;

constexpr int threads = 128;
constexpr int m = 64;
constexpr int depth = 64;  // of a product, in four steps of 16
constexpr int k_step = 16;

constexpr bool a_in_registers = specialisation::a_in_registers;
constexpr Major a_major = specialisation::a_mn_major ? Major::mn : Major::k;

constexpr int a_bytes = m * depth * 2;
constexpr int b_offset = a_bytes;
constexpr int barrier_offset = b_offset + 256 * depth * 2;

/// An operand of `outer` rows of A or columns of B in shared memory, cut into panels one swizzled
/// row wide.
struct Operand {
    uint32_t start;
    int outer;
    Major major;
    MatrixSwizzle swizzle;

    __device__ int panel_columns() const { return row_bytes(swizzle) / 2; }
    __device__ int panels() const {
        const int columns = major == Major::k ? depth : outer;
        return (columns + panel_columns() - 1) / panel_columns();
    }
    __device__ int panel_bytes() const {
        return (major == Major::k ? outer : depth) * row_bytes(swizzle);
    }
    __device__ int bytes() const { return panels() * panel_bytes(); }

    __device__ void load(const TensorMap& map, uint32_t barrier) const {
        for (int panel = 0; panel < panels(); ++panel) {
            tma_load_2d(start + panel * panel_bytes(), &map, panel * panel_columns(), 0, barrier);
        }
    }

    /// Of 16 elements of K from `k` on.
    __device__ MatrixDescriptor descriptor(int k) const {
        if (major == Major::mn) {
            return MatrixDescriptor(start, mn_major_layout(swizzle, panel_bytes()))
                .advanced(k / k_step * mn_major_step(swizzle));
        }
        const int within_panel = k % panel_columns() / k_step * k_major_step;
        return MatrixDescriptor(start, k_major_layout(swizzle, panel_bytes()))
            .advanced(k / panel_columns() * panel_bytes() + within_panel);
    }
};

/// The descriptors of all steps, computed before the first product: what is computed between
/// products makes ptxas fence them.
struct Steps {
    MatrixDescriptor at[depth / k_step];

    __device__ explicit Steps(const Operand& operand)
        : at{operand.descriptor(0), operand.descriptor(k_step), operand.descriptor(2 * k_step),
             operand.descriptor(3 * k_step)} {}
};

/// A thread's first row of D and of A, and its first column in each group of eight.
__device__ __forceinline__ int fragment_row() {
    return static_cast<int>(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4);
}
__device__ __forceinline__ int fragment_column() {
    return static_cast<int>(threadIdx.x % 4 * 2);
}

/// Where d[i] of this thread lies in a 64×n matrix.
__device__ __forceinline__ int place(int i, int n) {
    return (fragment_row() + i / 2 % 2 * 8) * n + i / 4 * 8 + fragment_column() + i % 2;
}

/// A's fragments, two elements a register.
__device__ __forceinline__ void load_a(OperandRegister (&a)[depth / k_step][4], const void* rows) {
#pragma unroll
    for (int step = 0; step < depth / k_step; ++step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = fragment_row() + i % 2 * 8;
            const int k = step * k_step + i / 2 * 8 + fragment_column();
            a[step][i] = static_cast<const uint32_t*>(rows)[(row * depth + k) / 2];
        }
    }
}

template <int n, Major b_major>
__device__ void multiply(const WgmmaProductArguments& arguments, const Operand& a_operand,
                         const Operand& b_operand) {
    AccumulatorRegister d[n / 2];
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
        d[i] = arguments.before[place(i, n)];
    }
    const bool add = arguments.accumulate != 0;
    const Steps b_steps(b_operand);
    if constexpr (a_in_registers) {
        OperandRegister a[depth / k_step][4];
        load_a(a, arguments.a_rows);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < depth / k_step; ++step) {
            wgmma_m64k16<Element, n, b_major>(d, a[step], b_steps.at[step], add || step > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_settle(a);
    } else {
        const Steps a_steps(a_operand);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < depth / k_step; ++step) {
            wgmma_m64k16<Element, n, a_major, b_major>(d, a_steps.at[step], b_steps.at[step],
                                                       add || step > 0);
        }
        wgmma_commit();
        wgmma_wait<0>();
    }
    wgmma_settle(d);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
        arguments.d[place(i, n)] = d[i];
    }
}

template <int n>
__device__ void multiply(const WgmmaProductArguments& arguments, const Operand& a,
                         const Operand& b) {
    if (b.major == Major::mn) {
        multiply<n, Major::mn>(arguments, a, b);
    } else {
        multiply<n, Major::k>(arguments, a, b);
    }
}

/// Brings both operands into shared memory; returns when they are there.
__device__ __forceinline__ void load_operands(const WgmmaProductArguments& arguments,
                                              const Operand& a, const Operand& b,
                                              uint32_t barrier) {
    if (threadIdx.x == 0) {
        mbarrier_initialise(barrier, 1);
        mbarrier_initialisation_fence();
        mbarrier_arrive_expect_bytes(barrier, b.bytes() + (a_in_registers ? 0 : a.bytes()));
        if constexpr (!a_in_registers) {
            a.load(arguments.a, barrier);
        }
        b.load(arguments.b, barrier);
    }
    __syncthreads();
    mbarrier_wait(barrier, 0);
}

extern "C" __global__ void __launch_bounds__(threads, 1)
    wgmma_product(const __grid_constant__ WgmmaProductArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    const uint32_t shared = shared_address(shared_memory);
    const auto swizzle = static_cast<MatrixSwizzle>(arguments.swizzle);
    const Operand a{shared, m, a_major, swizzle};
    const Operand b{shared + b_offset, arguments.n,
                    arguments.b_mn_major != 0 ? Major::mn : Major::k, swizzle};
    load_operands(arguments, a, b, shared + barrier_offset);
    if constexpr (specialisation::all_widths) {
        switch (arguments.n) {
            case 32:
                multiply<32>(arguments, a, b);
                break;
            case 64:
                multiply<64>(arguments, a, b);
                break;
            case 96:
                multiply<96>(arguments, a, b);
                break;
            case 128:
                multiply<128>(arguments, a, b);
                break;
            case 192:
                multiply<192>(arguments, a, b);
                break;
            default:
                multiply<256>(arguments, a, b);
                break;
        }
    } else {
        multiply<64>(arguments, a, b);
    }
}

/// Two groups under way at once, of K 0 … 31 and 32 … 63, into accumulators of their own; the first
/// is used while the second may still run. d is their sum. n is 64, b is K-major.
extern "C" __global__ void __launch_bounds__(threads, 1)
    wgmma_groups(const __grid_constant__ WgmmaProductArguments arguments) {
    extern __shared__ __align__(1024) unsigned char shared_memory[];
    constexpr int n = 64;
    const uint32_t shared = shared_address(shared_memory);
    const auto swizzle = static_cast<MatrixSwizzle>(arguments.swizzle);
    const Operand a{shared, m, Major::k, swizzle};
    const Operand b{shared + b_offset, n, Major::k, swizzle};
    load_operands(arguments, a, b, shared + barrier_offset);

    AccumulatorRegister first[n / 2];
    AccumulatorRegister second[n / 2];
    const Steps a_steps(a);
    const Steps b_steps(b);
    constexpr int half = depth / k_step / 2;
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < half; ++step) {
        wgmma_m64k16<Element, n, Major::k, Major::k>(first, a_steps.at[step], b_steps.at[step],
                                                     step > 0);
    }
    wgmma_commit();
#pragma unroll
    for (int step = half; step < 2 * half; ++step) {
        wgmma_m64k16<Element, n, Major::k, Major::k>(second, a_steps.at[step], b_steps.at[step],
                                                     step > half);
    }
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_settle(first);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
        arguments.d[place(i, n)] = first[i];
    }
    wgmma_wait<0>();
    wgmma_settle(second);
#pragma unroll
    for (int i = 0; i < n / 2; ++i) {
        arguments.d[place(i, n)] += second[i];
    }
}

}  // namespace backlight::kernel
