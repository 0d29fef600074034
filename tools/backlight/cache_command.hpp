#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "subcommand.hpp"

namespace backlight::tool {

/// "90s", "15m", "12h", "30d". Throws `invalid_argument` with the text and the rule, as the next.
std::chrono::seconds parse_age(std::string_view text);

/// "1000000", "500K", "200M", "1G": units of 1024.
std::uint64_t parse_bytes(std::string_view text);

/// The subcommand `cache` with its own: info, list, verify, prune, explain.
void add_cache(const Setup& setup);

}  // namespace backlight::tool
