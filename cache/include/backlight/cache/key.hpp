#pragma once

#include <string>
#include <string_view>

namespace backlight::cache {

/// What an entry is found by: an ordered list of named fields. Names and values are framed by their
/// lengths, so that two different lists never give the same text, whatever the fields contain.
class Key {
  public:
    Key();

    Key& add(std::string_view name, std::string_view value);

    /// The whole key, for a person to read and for an entry to be compared with; begins with the
    /// schema, which changes when the meaning of a field does.
    const std::string& text() const noexcept { return text_; }

    /// 32 lower-case hexadecimal digits: XXH3-128 of the text. It names the entry and proves
    /// nothing: the hash resists accidents, not adversaries, so entries hold the text as well.
    std::string digest() const;

    bool operator==(const Key&) const = default;

  private:
    std::string text_;
};

/// The same hash of any bytes.
std::string digest_of(std::string_view bytes);

}  // namespace backlight::cache
