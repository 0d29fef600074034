#pragma once

#include <span>
#include <string_view>

namespace backlight::compiler {

/// A file of kernel_sources/, embedded when the library was built.
struct EmbeddedSource {
    /// Path relative to kernel_sources/, as sources include it.
    std::string_view name;
    std::string_view text;
};

/// All of them, sorted by name.
std::span<const EmbeddedSource> embedded_sources() noexcept;

}  // namespace backlight::compiler
