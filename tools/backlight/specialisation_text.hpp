#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::tool {

/// Without their ends; an empty text has none.
std::vector<std::string_view> lines_of(std::string_view text);

/// "block_q" and "64" of "constexpr int block_q = 64;  // query rows a tile".
struct Constant {
    std::string_view name;
    std::string_view value;
};

/// What a line of a specialisation declares; nothing where it declares no constant and no type.
std::optional<Constant> constant_of(std::string_view line);

/// "Element=bf16 head_dim=128 causal=true …": the constants of a specialisation in one line.
std::string specialisation_summary(std::string_view specialisation);

}  // namespace backlight::tool
