#pragma once

#include <string_view>

namespace backlight {

/// The project's version, for example "0.1.0".
std::string_view version() noexcept;

/// What `git describe --always --dirty` said when the library was built; "unknown" where the
/// sources were not in a git repository.
std::string_view git_revision() noexcept;

}  // namespace backlight
