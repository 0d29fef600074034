#include "text_table.hpp"

#include <algorithm>

namespace backlight::tool {

namespace {

/// Characters of a UTF-8 text: bytes that do not continue one.
std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
        return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
    }));
}

}  // namespace

std::string TextTable::text() const {
    std::vector<std::size_t> widths(rows_.front().size(), 0);
    for (const auto& row : rows_) {
        for (std::size_t i = 0; i < widths.size(); ++i) {
            widths[i] = std::max(widths[i], width(row[i]));
        }
    }
    constexpr std::size_t gap = 2;
    std::string lines;
    for (const auto& row : rows_) {
        std::string line;
        for (std::size_t i = 0; i < widths.size(); ++i) {
            const std::string padding(widths[i] - width(row[i]), ' ');
            line += i == 0 ? "" : std::string(gap, ' ');
            line += i < names_ ? row[i] + padding : padding + row[i];
        }
        line.erase(line.find_last_not_of(' ') + 1);
        lines += line + '\n';
        if (&row == &rows_.front()) {
            std::size_t total = 0;
            for (const std::size_t column : widths) {
                total += column + gap;
            }
            lines += std::string(total - gap, '-') + '\n';
        }
    }
    return lines;
}

}  // namespace backlight::tool
