#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "backlight/cache/disk_cache.hpp"

namespace backlight::cache {

// An entry's file:
//
//     magic and format version      8 bytes
//     length of the key text        8 bytes, little-endian, as all lengths
//     length of the metadata        8 bytes
//     length of the payload         8 bytes
//     key text, metadata, payload
//     XXH3-128 of all before it     32 hexadecimal digits

std::string encode_entry(std::string_view key_text, const Entry& entry);

/// Null unless the bytes are a whole entry of that key; `reason` then says what is wrong.
std::optional<Entry> decode_entry(std::string_view bytes, std::string_view key_text,
                                  std::string& reason);

}  // namespace backlight::cache
