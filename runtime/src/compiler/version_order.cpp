#include "compiler/version_order.hpp"

#include <algorithm>
#include <cctype>

namespace backlight::compiler {

bool is_newer(std::string_view version, std::string_view other) noexcept {
    const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
    const auto take_number = [&](std::string_view& text) {
        std::size_t end = 0;
        while (end < text.size() && is_digit(text[end])) {
            ++end;
        }
        std::string_view digits = text.substr(0, end);
        digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
        text.remove_prefix(end);
        return digits;
    };
    while (!version.empty() && !other.empty()) {
        if (is_digit(version.front()) && is_digit(other.front())) {
            const std::string_view mine = take_number(version);
            const std::string_view theirs = take_number(other);
            if (mine != theirs) {
                return mine.size() != theirs.size() ? mine.size() > theirs.size() : mine > theirs;
            }
        } else if (version.front() != other.front()) {
            return version.front() > other.front();
        } else {
            version.remove_prefix(1);
            other.remove_prefix(1);
        }
    }
    return !version.empty();
}

}  // namespace backlight::compiler
