// Changes to the text of a kernel: of `edit` and `dropped` each kernel has its own, in a namespace
// for `using namespace`.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "planted_faults.hpp"

namespace backlight::test {

/// Other text in place of what is in one of the kernel's files.
struct EditsOf {
    /// How the files' names begin.
    std::string_view kernel;

    SourceEdit operator()(std::string from, std::string to) const {
        return edit_of(kernel, std::move(from), std::move(to));
    }
};

/// Nothing in its place.
struct DropsOf {
    EditsOf edits;

    SourceEdit operator()(std::string text) const { return edits(std::move(text), ";"); }
};

namespace mma_resident_edits {
inline constexpr EditsOf edit{"attention_backward_mma_resident"};
inline constexpr DropsOf dropped{edit};
}  // namespace mma_resident_edits

namespace wgmma_edits {
inline constexpr EditsOf edit{"attention_backward_wgmma"};
inline constexpr DropsOf dropped{edit};
}  // namespace wgmma_edits

}  // namespace backlight::test
