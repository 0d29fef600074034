// The parts of CUDA C++ that kernels use without an include, for the host compiler.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "emulator/machine.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
// Not alignas, which may not stand between `extern` and the type.
#define __align__(bytes) __attribute__((aligned(bytes)))
// A block runs on one host thread from its first instruction to its last.
#define __shared__ thread_local

namespace backlight::emulation {

/// Set when the object is loaded.
inline const Machine* machine = nullptr;

/// Reads like a member of threadIdx, blockIdx, …
template <unsigned Position::*field>
struct PositionField {
    operator unsigned() const { return machine->position()->*field; }  // NOLINT
};

/// The dimensions that our launches do not use.
struct Zero {
    constexpr operator unsigned() const { return 0; }  // NOLINT
};
struct One {
    constexpr operator unsigned() const { return 1; }  // NOLINT
};

struct ThreadIndex {
    PositionField<&Position::thread> x;
    Zero y, z;
};
struct BlockIndex {
    PositionField<&Position::block> x;
    Zero y, z;
};
struct BlockExtent {
    PositionField<&Position::threads> x;
    One y, z;
};
struct GridExtent {
    PositionField<&Position::blocks> x;
    One y, z;
};

}  // namespace backlight::emulation

static constexpr backlight::emulation::ThreadIndex threadIdx;
static constexpr backlight::emulation::BlockIndex blockIdx;
static constexpr backlight::emulation::BlockExtent blockDim;
static constexpr backlight::emulation::GridExtent gridDim;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline int min(int a, int b) {
    return b < a ? b : a;
}
inline int max(int a, int b) {
    return a < b ? b : a;
}

inline int __clz(int value) {
    return std::countl_zero(static_cast<unsigned>(value));
}

inline float __uint_as_float(unsigned bits) {
    return std::bit_cast<float>(bits);
}
inline unsigned __float_as_uint(float value) {
    return std::bit_cast<unsigned>(value);
}
inline float __int_as_float(int bits) {
    return std::bit_cast<float>(bits);
}
inline int __float_as_int(float value) {
    return std::bit_cast<int>(value);
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline void sincospif(float x, float* sine, float* cosine) {
    constexpr double pi = 3.14159265358979323846;
    *sine = static_cast<float>(std::sin(pi * static_cast<double>(x)));
    *cosine = static_cast<float>(std::cos(pi * static_cast<double>(x)));
}

/// Runs on by a thousand cycles at each reading, so that a loop that waits for a time ends.
inline long long clock64() {
    static thread_local long long cycles = 0;
    return cycles += 1000;
}

inline void __syncthreads(backlight::emulation::Site site = backlight::emulation::Site::here()) {
    backlight::emulation::machine->block_barrier(
        0, 0, backlight::emulation::BarrierUse::synchronise, site);
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       backlight::emulation::Site site = backlight::emulation::Site::here()) {
    backlight::emulation::machine->warp_barrier(mask, site);
}

template <typename Value>
Value backlight_shuffle(unsigned mask, Value value, int source_lane,
                        backlight::emulation::Site site) {
    static_assert(sizeof(Value) == sizeof(unsigned), "shuffles move 32-bit values");
    return std::bit_cast<Value>(backlight::emulation::machine->shuffle(
        mask, std::bit_cast<unsigned>(value), source_lane, site));
}
inline int backlight_lane() {
    return static_cast<int>(threadIdx.x % 32);
}
template <typename Value>
Value __shfl_sync(unsigned mask, Value value, int source_lane,
                  backlight::emulation::Site site = backlight::emulation::Site::here()) {
    return backlight_shuffle(mask, value, source_lane % 32, site);
}
template <typename Value>
Value __shfl_xor_sync(unsigned mask, Value value, int distance,
                      backlight::emulation::Site site = backlight::emulation::Site::here()) {
    return backlight_shuffle(mask, value, backlight_lane() ^ distance, site);
}
template <typename Value>
Value __shfl_up_sync(unsigned mask, Value value, unsigned distance,
                     backlight::emulation::Site site = backlight::emulation::Site::here()) {
    const int source = backlight_lane() - static_cast<int>(distance);
    return backlight_shuffle(mask, value, source < 0 ? backlight_lane() : source, site);
}
template <typename Value>
Value __shfl_down_sync(unsigned mask, Value value, unsigned distance,
                       backlight::emulation::Site site = backlight::emulation::Site::here()) {
    const int source = backlight_lane() + static_cast<int>(distance);
    return backlight_shuffle(mask, value, source > 31 ? backlight_lane() : source, site);
}
inline unsigned __ballot_sync(
    unsigned mask, int predicate,
    backlight::emulation::Site site = backlight::emulation::Site::here()) {
    return backlight::emulation::machine->ballot(mask, predicate != 0, site);
}
inline int __any_sync(unsigned mask, int predicate,
                      backlight::emulation::Site site = backlight::emulation::Site::here()) {
    return __ballot_sync(mask, predicate, site) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate,
                      backlight::emulation::Site site = backlight::emulation::Site::here()) {
    return __ballot_sync(mask, predicate, site) == mask ? 1 : 0;
}
