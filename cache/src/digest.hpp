#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace backlight::cache {

inline constexpr std::size_t digest_bytes = 16;

/// XXH3-128 in its canonical order of bytes, as files hold it.
std::string binary_digest_of(std::string_view bytes);

/// The lower-case hexadecimal digits of any bytes.
std::string hexadecimal(std::string_view bytes);

}  // namespace backlight::cache
