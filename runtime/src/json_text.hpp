#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace backlight {

/// What a text of JSON says.
struct JsonText {
    nlohmann::json value;
    /// Why there is no value, to follow "it"; empty where there is one.
    std::string problem;
};

/// What counts where an object has two fields of one name, of which JSON itself says nothing.
enum class RepeatedField { last_counts, refused };

/// For JSON that a person or another program wrote, and so may be anything at all: nothing in it
/// throws, and none is so deeply nested that whoever goes through it runs out of stack.
JsonText parse_json(std::string_view text, RepeatedField repeated = RepeatedField::last_counts);

}  // namespace backlight
