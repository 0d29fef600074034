#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::cache {

struct KeyField {
    std::string name;
    std::string value;

    bool operator==(const KeyField&) const = default;
};

/// What an entry is found by: an ordered list of named fields. Names and values are framed by their
/// lengths, so that two different lists never give the same text, whatever the fields contain.
class Key {
  public:
    Key();

    /// The key whose `text` this is; nothing unless it is one byte for byte, of whatever schema.
    static std::optional<Key> from_text(std::string_view text);

    Key& add(std::string_view name, std::string_view value);

    /// The whole key, for a person to read and for an entry to be compared with; begins with the
    /// schema, which changes when the meaning of a field does.
    const std::string& text() const noexcept { return text_; }

    /// The fields in their order, the schema first.
    std::vector<KeyField> fields() const;

    /// 32 lower-case hexadecimal digits: XXH3-128 of the text. It names the entry and proves
    /// nothing: the hash resists accidents, not adversaries, so entries hold the text as well.
    std::string digest() const;

    bool operator==(const Key&) const = default;

  private:
    std::string text_;
};

/// A field that two keys do not share: where a value is missing, that key has no such field.
struct FieldDifference {
    std::string name;
    std::optional<std::string> wanted;
    std::optional<std::string> found;

    bool operator==(const FieldDifference&) const = default;
};

/// Compared by name, those of one name in their order. In the order of `wanted`, then what only
/// `found` has.
std::vector<FieldDifference> differing_fields(const Key& wanted, const Key& found);

/// The same hash of any bytes, as `Key::digest` gives it.
std::string digest_of(std::string_view bytes);

}  // namespace backlight::cache
