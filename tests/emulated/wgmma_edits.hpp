// Changes to the text of the wgmma kernel.
#pragma once

#include <string>
#include <utility>

#include "planted_faults.hpp"

// In a namespace of its own: other kernels have functions of these names.
namespace backlight::test::wgmma_edits {

inline SourceEdit edit(std::string from, std::string to) {
    return edit_of("attention_backward_wgmma", std::move(from), std::move(to));
}
inline SourceEdit dropped(std::string text) {
    return edit(std::move(text), ";");
}

}  // namespace backlight::test::wgmma_edits
