// Changes to the text of the register-resident mma kernel.
#pragma once

#include <string>
#include <utility>

#include "planted_faults.hpp"

// In a namespace of its own: other kernels have functions of these names.
namespace backlight::test::mma_resident_edits {

inline SourceEdit edit(std::string from, std::string to) {
    return edit_of("attention_backward_mma_resident", std::move(from), std::move(to));
}
inline SourceEdit dropped(std::string text) {
    return edit(std::move(text), ";");
}

}  // namespace backlight::test::mma_resident_edits
