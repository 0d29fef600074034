#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::tool {

/// One machine instruction of a disassembly.
struct SassInstruction {
    /// In bytes from the start of the function.
    std::uint64_t address = 0;
    /// It has a guard (`@P0`, `@!UP1`): it may do nothing.
    bool guarded = false;
    /// With its modifiers: "HMMA.16816.F32.BF16".
    std::string opcode = {};
    /// "R4, R8, R12, R4".
    std::string operands = {};
    /// Index of the instruction that a branch goes to.
    std::optional<std::size_t> target = std::nullopt;

    /// The opcode without its modifiers: "HMMA".
    std::string_view name() const noexcept {
        return std::string_view(opcode).substr(0, opcode.find('.'));
    }
};

/// A function's instructions in order of their addresses.
struct SassFunction {
    std::string name;
    std::vector<SassInstruction> instructions;
};

/// Reads what `nvdisasm -c` or `cuobjdump --dump-sass` prints of a cubin: branches by label or by
/// address. What is no instruction and no label is passed over.
std::vector<SassFunction> parse_sass(std::string_view listing);

}  // namespace backlight::tool
