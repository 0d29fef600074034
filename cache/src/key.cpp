#include "backlight/cache/key.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace backlight::cache {

namespace {

constexpr std::string_view schema_field = "schema";
constexpr std::string_view schema = "1";

void append_framed(std::string& text, std::string_view value) {
    text += std::to_string(value.size());
    text += ':';
    text += value;
}

/// Takes `<length>:<value>` off the front of the text.
std::optional<std::string_view> take_framed(std::string_view& text) {
    std::size_t length = 0;
    const char* const begin = text.data();
    const char* const end = begin + text.size();
    const auto [after, failure] = std::from_chars(begin, end, length);
    // A zero in front would be another text of the same fields.
    const bool padded = after - begin > 1 && *begin == '0';
    if (failure != std::errc() || padded || after == end || *after != ':') {
        return std::nullopt;
    }
    text.remove_prefix(static_cast<std::size_t>(after - begin) + 1);
    if (length > text.size()) {
        return std::nullopt;
    }
    const std::string_view value = text.substr(0, length);
    text.remove_prefix(length);
    return value;
}

bool take_character(std::string_view& text, char character) {
    if (text.empty() || text.front() != character) {
        return false;
    }
    text.remove_prefix(1);
    return true;
}

std::optional<std::vector<KeyField>> parse(std::string_view text) {
    std::vector<KeyField> fields;
    while (!text.empty()) {
        const auto name = take_framed(text);
        if (!name || !take_character(text, '=')) {
            return std::nullopt;
        }
        const auto value = take_framed(text);
        if (!value || !take_character(text, '\n')) {
            return std::nullopt;
        }
        fields.push_back({std::string(*name), std::string(*value)});
    }
    if (fields.empty() || fields.front().name != schema_field) {
        return std::nullopt;
    }
    return fields;
}

}  // namespace

Key::Key() {
    add(schema_field, schema);
}

std::optional<Key> Key::from_text(std::string_view text) {
    if (!parse(text)) {
        return std::nullopt;
    }
    Key key;
    key.text_ = text;
    return key;
}

Key& Key::add(std::string_view name, std::string_view value) {
    append_framed(text_, name);
    text_ += '=';
    append_framed(text_, value);
    text_ += '\n';
    return *this;
}

std::vector<KeyField> Key::fields() const {
    return parse(text_).value_or(std::vector<KeyField>());
}

std::string Key::digest() const {
    return digest_of(text_);
}

std::vector<FieldDifference> differing_fields(const Key& wanted, const Key& found) {
    std::vector<KeyField> others = found.fields();
    std::vector<FieldDifference> differences;
    for (KeyField& field : wanted.fields()) {
        const auto other = std::find_if(others.begin(), others.end(), [&](const KeyField& one) {
            return one.name == field.name;
        });
        if (other == others.end()) {
            differences.push_back({std::move(field.name), std::move(field.value), std::nullopt});
            continue;
        }
        if (other->value != field.value) {
            differences.push_back(
                {std::move(field.name), std::move(field.value), std::move(other->value)});
        }
        others.erase(other);
    }
    for (KeyField& field : others) {
        differences.push_back({std::move(field.name), std::nullopt, std::move(field.value)});
    }
    return differences;
}

}  // namespace backlight::cache
