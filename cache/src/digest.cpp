#include "digest.hpp"

#include "backlight/cache/key.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace backlight::cache {

std::string binary_digest_of(std::string_view bytes) {
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, hash);
    static_assert(sizeof(canonical.digest) == digest_bytes);
    return {reinterpret_cast<const char*>(canonical.digest), digest_bytes};
}

std::string hexadecimal(std::string_view bytes) {
    static constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char character : bytes) {
        const auto byte = static_cast<unsigned char>(character);
        text += digits[byte >> 4U];
        text += digits[byte & 0xfU];
    }
    return text;
}

std::string digest_of(std::string_view bytes) {
    return hexadecimal(binary_digest_of(bytes));
}

}  // namespace backlight::cache
