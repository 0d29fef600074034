// setmaxnreg: the warps of a warpgroup give registers back, or wait for some that others give back.
// `registers` a thread is a multiple of 8 from 24 to 256. All warps of the warpgroup execute the
// same instruction, and the kernel states its launch bounds. ptxas ignores it, with no more than a
// line in its log, where the code that follows needs more registers than it is given.
#pragma once

namespace backlight::kernel {

template <int registers>
__device__ __forceinline__ void decrease_registers() {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(registers));
}

template <int registers>
__device__ __forceinline__ void increase_registers() {
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0,
                  "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(registers));
}

}  // namespace backlight::kernel
