#include "entry_format.hpp"

#include <array>
#include <cstdint>
#include <cstring>

namespace backlight::cache {

namespace {

constexpr std::string_view magic = {"BLCACHE\x01", 8};
constexpr std::size_t length_bytes = 8;
constexpr std::size_t lengths = 3;
constexpr std::size_t header_bytes = magic.size() + lengths * length_bytes;
constexpr std::size_t checksum_bytes = 32;

void append_length(std::string& bytes, std::size_t length) {
    for (std::size_t i = 0; i < length_bytes; ++i) {
        bytes += static_cast<char>((static_cast<std::uint64_t>(length) >> (8 * i)) & 0xffU);
    }
}

std::uint64_t read_length(std::string_view bytes, std::size_t index) {
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < length_bytes; ++i) {
        const auto byte =
            static_cast<unsigned char>(bytes[magic.size() + index * length_bytes + i]);
        length |= static_cast<std::uint64_t>(byte) << (8 * i);
    }
    return length;
}

}  // namespace

std::string encode_entry(std::string_view key_text, const Entry& entry) {
    std::string bytes(magic);
    append_length(bytes, key_text.size());
    append_length(bytes, entry.metadata.size());
    append_length(bytes, entry.payload.size());
    bytes += key_text;
    bytes += entry.metadata;
    bytes.append(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
    bytes += digest_of(bytes);
    return bytes;
}

std::optional<Entry> decode_entry(std::string_view bytes, std::string_view key_text,
                                  std::string& reason) {
    if (bytes.size() < header_bytes + checksum_bytes) {
        reason = "it is too short";
        return std::nullopt;
    }
    if (bytes.substr(0, magic.size()) != magic) {
        reason = "it is not an entry of this format";
        return std::nullopt;
    }
    const std::size_t content_bytes = bytes.size() - header_bytes - checksum_bytes;
    std::array<std::uint64_t, lengths> sizes{};
    std::uint64_t left = content_bytes;
    for (std::size_t i = 0; i < lengths; ++i) {
        sizes[i] = read_length(bytes, i);
        // Compared one at a time: a sum of lengths out of a broken file could wrap around.
        if (sizes[i] > left) {
            reason = "its lengths do not fit its size";
            return std::nullopt;
        }
        left -= sizes[i];
    }
    if (left != 0) {
        reason = "its lengths do not fit its size";
        return std::nullopt;
    }
    const std::string_view checked = bytes.substr(0, header_bytes + content_bytes);
    if (digest_of(checked) != bytes.substr(checked.size())) {
        reason = "its checksum is wrong";
        return std::nullopt;
    }
    std::string_view content = checked.substr(header_bytes);
    if (content.substr(0, sizes[0]) != key_text) {
        reason = "it belongs to another key";
        return std::nullopt;
    }
    content.remove_prefix(sizes[0]);
    Entry entry;
    entry.metadata = content.substr(0, sizes[1]);
    content.remove_prefix(sizes[1]);
    entry.payload.resize(content.size());
    if (!content.empty()) {
        std::memcpy(entry.payload.data(), content.data(), content.size());
    }
    return entry;
}

}  // namespace backlight::cache
