// The command, run in the test's own process.
#pragma once

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"

namespace backlight::test {

struct Outcome {
    int exit_code;
    std::string out;
    std::string errors;
};

inline Outcome command(const std::vector<std::string>& arguments) {
    std::ostringstream out;
    std::ostringstream errors;
    const int exit_code = tool::run_command(arguments, out, errors);
    return {exit_code, out.str(), errors.str()};
}

inline bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace backlight::test
