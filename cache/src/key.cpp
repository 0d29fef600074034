#include "backlight/cache/key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace backlight::cache {

namespace {

constexpr std::string_view schema = "1";

void append_framed(std::string& text, std::string_view value) {
    text += std::to_string(value.size());
    text += ':';
    text += value;
}

}  // namespace

Key::Key() {
    add("schema", schema);
}

Key& Key::add(std::string_view name, std::string_view value) {
    append_framed(text_, name);
    text_ += '=';
    append_framed(text_, value);
    text_ += '\n';
    return *this;
}

std::string Key::digest() const {
    return digest_of(text_);
}

std::string digest_of(std::string_view bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const unsigned char byte : canonical.digest) {
        text += digits[byte >> 4U];
        text += digits[byte & 0xfU];
    }
    return text;
}

}  // namespace backlight::cache
