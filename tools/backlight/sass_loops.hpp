#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "sass_listing.hpp"

namespace backlight::tool {

/// A loop: all that lies between the instruction that a branch goes back to and that branch. What
/// the compiler moved out of line, such as a wait that did not succeed at once, is not in it; a
/// branch inside that seldom runs is.
struct SassLoop {
    /// Indices of its first and last instruction.
    std::size_t first = 0;
    std::size_t last = 0;
    /// The `USETMAXREG` that every way to the loop passes: a warp-specialised kernel's roles begin
    /// with one. Empty: there is none.
    std::string_view register_change;

    std::span<const SassInstruction> instructions(const SassFunction& function) const {
        return std::span(function.instructions).subspan(first, last - first + 1);
    }
};

/// HMMA or HGMMA: a product on the tensor cores.
bool is_tensor_instruction(const SassInstruction& instruction) noexcept;

/// The innermost loops with tensor instructions, in order of their addresses. Strings point into
/// the function.
std::vector<SassLoop> tensor_loops(const SassFunction& function);

}  // namespace backlight::tool
