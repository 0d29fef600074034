// Fixed-width names and the 16-bit element types. NVRTC brings no <cstdint>, and no header from
// outside is included (a machine with only a driver and NVRTC must be able to compile).
#pragma once

namespace backlight::kernel {

using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int64_t = long long;

/// A bfloat16 number, as its bits: arithmetic happens in fp32 or in the tensor cores.
struct bf16 {
    uint16_t bits;
};

/// An IEEE half-precision number, as its bits.
struct fp16 {
    uint16_t bits;
};

/// A register of an operand (two 16-bit elements) and of an accumulator of the tensor cores. They
/// have names of their own because the emulated device, which compiles these sources too, fills
/// them as late as hardware may, and tells what uses them too early.
using OperandRegister = uint32_t;
using AccumulatorRegister = float;

constexpr int warp_size = 32;

}  // namespace backlight::kernel
