#include "text_table.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace backlight::tool {

namespace {

/// Whether a character of a UTF-8 text begins with this byte.
bool begins_character(char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

std::size_t width(std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

}  // namespace

std::string shortened(std::string_view text, std::size_t most_characters) {
    if (width(text) <= most_characters) {
        return std::string(text);
    }
    std::size_t characters = 0;
    const auto* const end = std::ranges::find_if(
        text, [&](char byte) { return begins_character(byte) && ++characters == most_characters; });
    return std::string(text.begin(), end) + "…";
}

void TextTable::add_below(std::string_view text) {
    constexpr std::string_view indent = "    ";
    rows_.back().below +=
        fmt::format("{}{}\n", indent, shortened(text, usual_terminal_columns - indent.size()));
}

std::string TextTable::text() const {
    std::vector<std::size_t> widths(rows_.front().cells.size(), 0);
    for (const Row& row : rows_) {
        for (std::size_t i = 0; i < widths.size(); ++i) {
            widths[i] = std::max(widths[i], width(row.cells[i]));
        }
    }
    constexpr std::size_t gap = 2;
    std::string lines;
    for (const Row& row : rows_) {
        std::string line;
        for (std::size_t i = 0; i < widths.size(); ++i) {
            const std::string padding(widths[i] - width(row.cells[i]), ' ');
            line += i == 0 ? "" : std::string(gap, ' ');
            line += i < names_ ? row.cells[i] + padding : padding + row.cells[i];
        }
        line.erase(line.find_last_not_of(' ') + 1);
        lines += line + '\n' + row.below;
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
