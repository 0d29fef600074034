#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "backlight/cache/entry.hpp"

namespace backlight::cache {

// An entry's file, and its bytes within a pack:
//
//     "BLCACHE" and the format's version       8 bytes
//     lengths of key text, metadata, payload   3 times 8 bytes, little-endian
//     XXH3-128 of the payload                  16 bytes
//     key text, metadata
//     XXH3-128 of all before it                16 bytes
//     payload
//
// The second checksum covers the first, so together they cover every byte; apart, they let a
// listing be sure of keys and metadata without reading payloads.

inline constexpr std::size_t entry_header_bytes = 48;

std::string encode_entry(std::string_view key_text, const Entry& entry);

/// An entry without its payload.
struct EntryHead {
    std::string_view key_text;
    std::string_view metadata;
    std::uint64_t payload_bytes = 0;
    /// Where the payload begins.
    std::size_t bytes = 0;
    std::string_view payload_digest;
};

/// How many bytes the head of an entry takes, out of its first `entry_header_bytes`; nothing where
/// that cannot be, for a file of `file_bytes`.
std::optional<std::size_t> head_bytes(std::string_view header, std::uint64_t file_bytes,
                                      std::string& reason);

/// The head of an entry of `file_bytes` that begins with these bytes, which it refers to; null
/// unless it is whole: `reason` then says what is wrong.
std::optional<EntryHead> decode_head(std::string_view bytes, std::uint64_t file_bytes,
                                     std::string& reason);

/// Null unless the bytes are a whole entry of that key; `reason` then says what is wrong.
std::optional<Entry> decode_entry(std::string_view bytes, std::string_view key_text,
                                  std::string& reason);

}  // namespace backlight::cache
