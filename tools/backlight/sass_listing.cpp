#include "sass_listing.hpp"

#include <charconv>
#include <functional>
#include <map>
#include <utility>

namespace backlight::tool {

namespace {

constexpr std::string_view blanks = " \t\r";

std::string_view trimmed(std::string_view text) {
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

/// The text up to the first blank, which is taken off `rest` with the blanks behind it.
std::string_view take_word(std::string_view& rest) {
    const std::string_view word = rest.substr(0, rest.find_first_of(blanks));
    rest = trimmed(rest.substr(word.size()));
    return word;
}

std::optional<std::uint64_t> hexadecimal(std::string_view digits) {
    std::uint64_t value = 0;
    const char* const end = digits.data() + digits.size();
    const auto [next, failure] = std::from_chars(digits.data(), end, value, 16);
    return failure == std::errc{} && next == end ? std::optional(value) : std::nullopt;
}

/// "/*0a10*/ @!P0 BRA `(.L_x_3) ;" with or without the encoding behind it, which is a comment that
/// begins with a blank.
std::optional<SassInstruction> instruction_in(std::string_view line) {
    constexpr std::string_view open = "/*";
    constexpr std::string_view close = "*/";
    if (!line.starts_with(open)) {
        return std::nullopt;
    }
    const std::size_t end = line.find(close);
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    const auto address = hexadecimal(line.substr(open.size(), end - open.size()));
    std::string_view rest = line.substr(end + close.size());
    const std::size_t semicolon = rest.find(';');
    if (!address || semicolon == std::string_view::npos) {
        return std::nullopt;
    }
    rest = trimmed(rest.substr(0, semicolon));
    SassInstruction instruction{.address = *address};
    if (rest.starts_with('@')) {
        instruction.guarded = true;
        take_word(rest);
    }
    instruction.opcode = take_word(rest);
    instruction.operands = rest;
    return instruction;
}

/// The last operand: where a branch says what it goes to.
std::string_view last_operand(const SassInstruction& instruction) {
    const std::string_view operands = instruction.operands;
    const std::size_t comma = operands.rfind(',');
    return trimmed(comma == std::string_view::npos ? operands : operands.substr(comma + 1));
}

bool goes_elsewhere(const SassInstruction& instruction) {
    const std::string_view name = instruction.name();
    return name == "BRA" || name == "JMP" || instruction.opcode == "WARPSYNC.COLLECTIVE";
}

/// A function while it is read: labels may come after the branches to them.
class FunctionReader {
  public:
    explicit FunctionReader(std::string_view name) { function_.name = name; }

    void add_label(std::string_view label) {
        labels_.emplace(label, function_.instructions.size());
    }

    void add(SassInstruction instruction) {
        addresses_.emplace(instruction.address, function_.instructions.size());
        function_.instructions.push_back(std::move(instruction));
    }

    bool empty() const noexcept { return function_.instructions.empty(); }

    SassFunction finished() && {
        for (SassInstruction& instruction : function_.instructions) {
            if (goes_elsewhere(instruction)) {
                instruction.target = target_of(last_operand(instruction));
            }
        }
        return std::move(function_);
    }

  private:
    std::optional<std::size_t> target_of(std::string_view operand) const {
        if (operand.starts_with("`(") && operand.ends_with(')')) {
            const auto label = labels_.find(operand.substr(2, operand.size() - 3));
            // A label at the very end stands for no instruction.
            return label != labels_.end() && label->second < function_.instructions.size()
                       ? std::optional(label->second)
                       : std::nullopt;
        }
        if (operand.starts_with("0x")) {
            if (const auto address = hexadecimal(operand.substr(2))) {
                const auto found = addresses_.find(*address);
                return found != addresses_.end() ? std::optional(found->second) : std::nullopt;
            }
        }
        return std::nullopt;
    }

    SassFunction function_;
    std::map<std::string, std::size_t, std::less<>> labels_;
    std::map<std::uint64_t, std::size_t> addresses_;
};

/// The name that a line gives to the function that begins with it: of nvdisasm ".text.<name>:", of
/// cuobjdump "Function : <name>".
std::optional<std::string_view> function_heading(std::string_view line) {
    constexpr std::string_view section = ".text.";
    constexpr std::string_view heading = "Function : ";
    if (line.starts_with(section) && line.ends_with(':')) {
        return line.substr(section.size(), line.size() - section.size() - 1);
    }
    if (line.starts_with(heading)) {
        return trimmed(line.substr(heading.size()));
    }
    return std::nullopt;
}

bool is_label(std::string_view line) {
    return line.ends_with(':') && line.find_first_of(blanks) == std::string_view::npos;
}

}  // namespace

std::vector<SassFunction> parse_sass(std::string_view listing) {
    std::vector<SassFunction> functions;
    std::optional<FunctionReader> reader;
    const auto finish = [&] {
        if (reader && !reader->empty()) {
            functions.push_back(std::move(*reader).finished());
        }
        reader.reset();
    };
    while (!listing.empty()) {
        const std::size_t end = listing.find('\n');
        const std::string_view line = trimmed(listing.substr(0, end));
        listing.remove_prefix(end == std::string_view::npos ? listing.size() : end + 1);
        if (const auto name = function_heading(line)) {
            finish();
            reader.emplace(*name);
        } else if (!reader) {
            continue;
        } else if (auto instruction = instruction_in(line)) {
            reader->add(std::move(*instruction));
        } else if (is_label(line)) {
            reader->add_label(line.substr(0, line.size() - 1));
        }
    }
    finish();
    return functions;
}

}  // namespace backlight::tool
