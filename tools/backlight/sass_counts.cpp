#include "sass_counts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "backlight/error.hpp"

namespace backlight::tool {

namespace {

/// Bytes that shared memory moves a clock: its 32 banks of 4.
constexpr double shared_bytes_per_clock = 128;

struct NamedClass {
    std::string_view name;
    SassClass instruction_class;
};

// Whole names, so that no new instruction is taken for an old one by its beginning.
constexpr std::array named_classes = {
    NamedClass{"HMMA", SassClass::hmma},         NamedClass{"HGMMA", SassClass::hgmma},
    NamedClass{"LDSM", SassClass::ldsm},         NamedClass{"STSM", SassClass::stsm},
    NamedClass{"LDS", SassClass::lds},           NamedClass{"STS", SassClass::sts},
    NamedClass{"LDG", SassClass::ldg},           NamedClass{"STG", SassClass::stg},
    NamedClass{"RED", SassClass::reduction},     NamedClass{"REDG", SassClass::reduction},
    NamedClass{"ATOM", SassClass::reduction},    NamedClass{"ATOMG", SassClass::reduction},
    NamedClass{"ATOMS", SassClass::reduction},   NamedClass{"UBLKCP", SassClass::bulk_copy},
    NamedClass{"UBLKRED", SassClass::bulk_copy}, NamedClass{"UBLKPF", SassClass::bulk_copy},
    NamedClass{"BAR", SassClass::bar},           NamedClass{"SYNCS", SassClass::syncs},
    NamedClass{"MUFU", SassClass::mufu},         NamedClass{"FFMA", SassClass::fp32},
    NamedClass{"FADD", SassClass::fp32},         NamedClass{"FMUL", SassClass::fp32},
    NamedClass{"FFMA2", SassClass::fp32},        NamedClass{"FADD2", SassClass::fp32},
    NamedClass{"FMUL2", SassClass::fp32},        NamedClass{"F2FP", SassClass::f2fp},
    NamedClass{"LDL", SassClass::spill},         NamedClass{"STL", SassClass::spill},
    NamedClass{"NOP", SassClass::nop},
};

bool has_modifier(const SassInstruction& instruction, std::string_view modifier) {
    std::string_view rest = instruction.opcode;
    while (true) {
        const std::size_t dot = rest.find('.');
        if (rest.substr(0, dot) == modifier) {
            return true;
        }
        if (dot == std::string_view::npos) {
            return false;
        }
        rest.remove_prefix(dot + 1);
    }
}

Error unknown_shape(const SassInstruction& instruction) {
    return {ErrorCode::unsupported,
            fmt::format("the instruction {} is not known: its shape must be 16816 or 1688 (HMMA), "
                        "or 64x<n>x16 (HGMMA)",
                        instruction.opcode)};
}

struct WarpgroupShape {
    double n;
    double k;
};

/// "HGMMA.64x128x16.F32.BF16"
WarpgroupShape warpgroup_shape(const SassInstruction& instruction) {
    constexpr std::string_view before = "HGMMA.64x";
    constexpr std::string_view after = "x16";
    const std::string_view opcode = instruction.opcode;
    int n = 0;
    if (opcode.starts_with(before)) {
        const std::string_view rest = opcode.substr(before.size());
        const auto [next, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), n);
        const std::string_view behind = rest.substr(static_cast<std::size_t>(next - rest.data()));
        if (failure == std::errc{} && n > 0 &&
            (behind == after || behind.starts_with(std::string(after) + '.'))) {
            return {.n = static_cast<double>(n), .k = 16};
        }
    }
    throw unknown_shape(instruction);
}

/// Bytes that a warp's quarter of a warpgroup's product reads from shared memory: B always, A
/// where the operand behind the accumulator is a descriptor and no register.
double warpgroup_operand_bytes(const SassInstruction& instruction) {
    constexpr double rows = 64;
    constexpr double element_bytes = 2;
    constexpr double warps = 4;
    const WarpgroupShape shape = warpgroup_shape(instruction);
    const std::string_view operands = instruction.operands;
    const std::size_t second = operands.find_first_not_of(" ,", operands.find(','));
    const bool a_in_shared_memory =
        second != std::string_view::npos && operands.substr(second).starts_with("gdesc");
    return (shape.n + (a_in_shared_memory ? rows : 0)) * shape.k * element_bytes / warps;
}

/// Matrices of 8 x 8 16-bit elements, 128 bytes each: "LDSM.16.M88.4".
double matrices(const SassInstruction& instruction) {
    return has_modifier(instruction, "4") ? 4 : has_modifier(instruction, "2") ? 2 : 1;
}

/// "LDS.128", "STS.64", "LDS.U16"
double bytes_of_lane(const SassInstruction& instruction) {
    return has_modifier(instruction, "128") ? 16 : has_modifier(instruction, "64") ? 8 : 4;
}

}  // namespace

const char* to_string(SassClass instruction_class) noexcept {
    switch (instruction_class) {
        case SassClass::hmma:
            return "HMMA";
        case SassClass::hgmma:
            return "HGMMA";
        case SassClass::ldsm:
            return "LDSM";
        case SassClass::stsm:
            return "STSM";
        case SassClass::lds:
            return "LDS";
        case SassClass::sts:
            return "STS";
        case SassClass::ldg:
            return "LDG";
        case SassClass::stg:
            return "STG";
        case SassClass::reduction:
            return "RED/ATOM";
        case SassClass::bulk_copy:
            return "UTMA/UBLK";
        case SassClass::bar:
            return "BAR";
        case SassClass::syncs:
            return "SYNCS";
        case SassClass::mufu:
            return "MUFU";
        case SassClass::fp32:
            return "FFMA/FADD/FMUL";
        case SassClass::f2fp:
            return "F2FP";
        case SassClass::spill:
            return "LDL/STL";
        case SassClass::nop:
            return "NOP";
        case SassClass::other:
            return "other";
    }
    return "unknown";
}

SassClass class_of(const SassInstruction& instruction) noexcept {
    const std::string_view name = instruction.name();
    if (name.starts_with("UTMA")) {
        return SassClass::bulk_copy;
    }
    const auto* const found = std::ranges::find(named_classes, name, &NamedClass::name);
    return found != named_classes.end() ? found->instruction_class : SassClass::other;
}

double hmma_flops(const SassInstruction& instruction) {
    if (class_of(instruction) != SassClass::hmma) {
        return 0;
    }
    constexpr double per_k = 2.0 * 16 * 8;
    if (has_modifier(instruction, "16816")) {
        return per_k * 16;
    }
    if (has_modifier(instruction, "1688")) {
        return per_k * 8;
    }
    throw unknown_shape(instruction);
}

double hgmma_flops(const SassInstruction& instruction) {
    if (class_of(instruction) != SassClass::hgmma) {
        return 0;
    }
    constexpr double rows_of_warp = 16;
    const WarpgroupShape shape = warpgroup_shape(instruction);
    return 2 * rows_of_warp * shape.n * shape.k;
}

double shared_clocks(const SassInstruction& instruction) {
    constexpr double lanes = 32;
    switch (class_of(instruction)) {
        case SassClass::ldsm:
        case SassClass::stsm:
            return matrices(instruction);
        case SassClass::lds:
        case SassClass::sts:
            return lanes * bytes_of_lane(instruction) / shared_bytes_per_clock;
        case SassClass::hgmma:
            return warpgroup_operand_bytes(instruction) / shared_bytes_per_clock;
        default:
            return 0;
    }
}

SassCounts count(std::span<const SassInstruction> instructions) {
    SassCounts counts;
    for (const SassInstruction& instruction : instructions) {
        ++counts.of_class[static_cast<std::size_t>(class_of(instruction))];
        ++counts.instructions;
        counts.hmma_flops += hmma_flops(instruction);
        counts.hgmma_flops += hgmma_flops(instruction);
        counts.shared_clocks += shared_clocks(instruction);
    }
    return counts;
}

}  // namespace backlight::tool
