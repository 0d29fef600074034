#include "specialisation_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace backlight::tool {

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

std::optional<Constant> constant_of(std::string_view line) {
    const std::size_t equals = line.find(" = ");
    const std::size_t stop = line.find(';');
    if (equals == std::string_view::npos || stop == std::string_view::npos || stop < equals ||
        !(line.starts_with("constexpr ") || line.starts_with("using "))) {
        return std::nullopt;
    }
    const std::string_view declared = line.substr(0, equals);
    const std::size_t value = equals + 3;
    return Constant{.name = declared.substr(declared.rfind(' ') + 1),
                    .value = line.substr(value, stop - value)};
}

std::string specialisation_summary(std::string_view specialisation) {
    std::string summary;
    for (const std::string_view line : lines_of(specialisation)) {
        if (const auto constant = constant_of(line)) {
            summary +=
                fmt::format("{}{}={}", summary.empty() ? "" : " ", constant->name, constant->value);
        }
    }
    return summary;
}

}  // namespace backlight::tool
