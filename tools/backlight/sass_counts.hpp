#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "sass_listing.hpp"

namespace backlight::tool {

/// What an instruction keeps busy, as far as a kernel of attention is told by it.
enum class SassClass {
    hmma,
    hgmma,
    ldsm,
    stsm,
    lds,
    sts,
    ldg,
    stg,
    /// RED and ATOM, of global and of shared memory.
    reduction,
    /// TMA: tensor and bulk copies and their reductions.
    bulk_copy,
    /// Barriers of the thread block.
    bar,
    /// mbarriers.
    syncs,
    mufu,
    /// FFMA, FADD, FMUL, packed ones too.
    fp32,
    /// Conversions to 16-bit types.
    f2fp,
    /// LDL and STL: registers in local memory.
    spill,
    nop,
    other,
};

inline constexpr std::size_t sass_class_count = static_cast<std::size_t>(SassClass::other) + 1;

/// The name in reports: "HMMA", "RED/ATOM".
const char* to_string(SassClass instruction_class) noexcept;

SassClass class_of(const SassInstruction& instruction) noexcept;

/// Floating-point operations of a warp's HMMA; 0 for anything else. Throws `unsupported` for a
/// shape that is not known, as does `hgmma_flops`.
double hmma_flops(const SassInstruction& instruction);

/// A warp's quarter of its warpgroup's HGMMA; 0 for anything else.
double hgmma_flops(const SassInstruction& instruction);

/// Clocks of shared memory's data path, 128 bytes each, that one warp takes: of ldmatrix, loads and
/// stores without bank conflicts, every lane with bytes of its own; of HGMMA a quarter of the
/// operands that its warpgroup reads there. 0 where it reads and writes none.
double shared_clocks(const SassInstruction& instruction);

/// What one warp executes of a piece of code, everything once.
struct SassCounts {
    std::array<int, sass_class_count> of_class = {};
    int instructions = 0;
    double hmma_flops = 0;
    double hgmma_flops = 0;
    double shared_clocks = 0;

    int of(SassClass instruction_class) const noexcept {
        return of_class[static_cast<std::size_t>(instruction_class)];
    }
};

SassCounts count(std::span<const SassInstruction> instructions);

}  // namespace backlight::tool
