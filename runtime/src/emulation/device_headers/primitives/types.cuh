// Fixed-width names and element types; see kernel_sources/primitives/types.cuh. The registers of
// the tensor cores are classes here, because they are filled late.
#pragma once

#include "emulator/cuda.h"

namespace backlight::kernel {

using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
using int64_t = long long;

struct bf16 {
    uint16_t bits;
};

struct fp16 {
    uint16_t bits;
};

constexpr int warp_size = 32;

/// A register as kernels use it: reads and writes like a `Value`, and tells the emulator when it is
/// used while something has yet to fill it.
template <typename Value>
class LateRegister : public emulation::Register {
  public:
    LateRegister() : emulation::Register{0, 0, emulation::machine->wgmma_fences()} {}
    LateRegister(Value value)  // NOLINT(google-explicit-constructor): as a register is given one
        : emulation::Register{std::bit_cast<uint32_t>(value), 0,
                              emulation::machine->wgmma_fences()} {}
    LateRegister(const LateRegister& other) : LateRegister(static_cast<Value>(other)) {}

    LateRegister& operator=(Value value) {
        if (tag != 0) {
            emulation::machine->write_register(this);
        }
        bits = std::bit_cast<uint32_t>(value);
        tag = 0;
        fences = emulation::machine->wgmma_fences();
        return *this;
    }
    LateRegister& operator=(const LateRegister& other) { return *this = static_cast<Value>(other); }
    LateRegister& operator+=(Value value) { return *this = static_cast<Value>(*this) + value; }
    LateRegister& operator-=(Value value) { return *this = static_cast<Value>(*this) - value; }
    LateRegister& operator*=(Value value) { return *this = static_cast<Value>(*this) * value; }

    operator Value() const {  // NOLINT(google-explicit-constructor)
        if (tag != 0) {
            emulation::machine->read_register(const_cast<LateRegister*>(this));
        }
        return std::bit_cast<Value>(bits);
    }
};

using OperandRegister = LateRegister<uint32_t>;
using AccumulatorRegister = LateRegister<float>;

}  // namespace backlight::kernel
