#include "sass_loops.hpp"

#include <algorithm>
#include <iterator>

namespace backlight::tool {

namespace {

/// Control does not go on to the instruction behind it.
bool ends_flow(const SassInstruction& instruction) {
    if (instruction.guarded) {
        return false;
    }
    const std::string_view name = instruction.name();
    // With a further operand the branch has a condition: "BRA.U UP0, `(.L_x_7)".
    return name == "EXIT" || name == "RET" ||
           ((name == "BRA" || name == "JMP") &&
            instruction.operands.find(',') == std::string::npos);
}

/// Whether some way from the function's start to `end` avoids `avoided`.
bool reached_without(const SassFunction& function, std::size_t end, std::size_t avoided) {
    if (avoided == 0) {
        return false;
    }
    std::vector<bool> seen(function.instructions.size(), false);
    std::vector<std::size_t> open = {0};
    seen[0] = true;
    const auto visit = [&](std::size_t next) {
        if (next < seen.size() && next != avoided && !seen[next]) {
            seen[next] = true;
            open.push_back(next);
        }
    };
    while (!open.empty()) {
        const std::size_t at = open.back();
        open.pop_back();
        if (at == end) {
            return true;
        }
        const SassInstruction& instruction = function.instructions[at];
        if (instruction.target) {
            visit(*instruction.target);
        }
        if (!ends_flow(instruction)) {
            visit(at + 1);
        }
    }
    return false;
}

/// Every loop with tensor instructions. Out-of-line code jumps backwards too when it is done: a
/// branch makes a loop only where every way to it passes what it goes back to.
std::vector<SassLoop> all_tensor_loops(const SassFunction& function) {
    std::vector<SassLoop> loops;
    const auto begin = function.instructions.begin();
    for (std::size_t last = 0; last < function.instructions.size(); ++last) {
        const auto& target = function.instructions[last].target;
        if (!target || *target > last) {
            continue;
        }
        const std::size_t first = *target;
        if (!std::any_of(begin + static_cast<std::ptrdiff_t>(first),
                         begin + static_cast<std::ptrdiff_t>(last) + 1, is_tensor_instruction) ||
            reached_without(function, last, first)) {
            continue;
        }
        const auto same =
            std::ranges::find_if(loops, [&](const SassLoop& loop) { return loop.first == first; });
        if (same != loops.end()) {
            same->last = last;
        } else {
            loops.push_back({.first = first, .last = last, .register_change = {}});
        }
    }
    return loops;
}

bool contains(const SassLoop& outer, const SassLoop& inner) {
    return outer.first <= inner.first && inner.last <= outer.last &&
           (outer.first != inner.first || outer.last != inner.last);
}

/// The last USETMAXREG ahead of the loop that every way to it passes.
std::string_view register_change_before(const SassFunction& function, std::size_t first) {
    for (std::size_t i = first; i-- > 0;) {
        const SassInstruction& instruction = function.instructions[i];
        if (instruction.name() == "USETMAXREG" && !reached_without(function, first, i)) {
            return instruction.opcode;
        }
    }
    return {};
}

}  // namespace

bool is_tensor_instruction(const SassInstruction& instruction) noexcept {
    return instruction.name() == "HMMA" || instruction.name() == "HGMMA";
}

std::vector<SassLoop> tensor_loops(const SassFunction& function) {
    const std::vector<SassLoop> all = all_tensor_loops(function);
    std::vector<SassLoop> innermost;
    std::ranges::copy_if(all, std::back_inserter(innermost), [&](const SassLoop& loop) {
        return std::ranges::none_of(all,
                                    [&](const SassLoop& other) { return contains(loop, other); });
    });
    std::ranges::sort(innermost, {}, &SassLoop::first);
    for (SassLoop& loop : innermost) {
        loop.register_change = register_change_before(function, loop.first);
    }
    return innermost;
}

}  // namespace backlight::tool
