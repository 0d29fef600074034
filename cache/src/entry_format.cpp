#include "entry_format.hpp"

#include <array>
#include <cstddef>
#include <cstring>

#include "byte_order.hpp"
#include "digest.hpp"

namespace backlight::cache {

namespace {

constexpr std::string_view magic = "BLCACHE";
constexpr char version = 2;
constexpr std::size_t lengths = 3;
constexpr std::size_t lengths_at = magic.size() + 1;
constexpr std::size_t payload_digest_at = lengths_at + lengths * number_bytes;
static_assert(payload_digest_at + digest_bytes == entry_header_bytes);

std::string_view as_text(const std::vector<std::byte>& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string encode_entry(std::string_view key_text, const Entry& entry) {
    const std::string_view payload = as_text(entry.payload);
    std::string bytes;
    bytes.reserve(entry_header_bytes + key_text.size() + entry.metadata.size() + digest_bytes +
                  payload.size());
    bytes += magic;
    bytes += version;
    append_number(bytes, key_text.size());
    append_number(bytes, entry.metadata.size());
    append_number(bytes, payload.size());
    bytes += binary_digest_of(payload);
    bytes += key_text;
    bytes += entry.metadata;
    bytes += binary_digest_of(bytes);
    bytes += payload;
    return bytes;
}

std::optional<std::size_t> head_bytes(std::string_view header, std::uint64_t file_bytes,
                                      std::string& reason) {
    if (header.size() < entry_header_bytes || file_bytes < entry_header_bytes + digest_bytes) {
        reason = "it is too short";
        return std::nullopt;
    }
    if (header.substr(0, magic.size()) != magic) {
        reason = "it is not an entry";
        return std::nullopt;
    }
    if (header[magic.size()] != version) {
        reason = "it is of another format version";
        return std::nullopt;
    }
    // Taken off one at a time: a sum of lengths out of a broken file could wrap around.
    std::uint64_t left = file_bytes - entry_header_bytes - digest_bytes;
    for (std::size_t i = 0; i < lengths; ++i) {
        const std::uint64_t length = number_at(header, lengths_at + i * number_bytes);
        if (length > left) {
            reason = "its lengths do not fit its size";
            return std::nullopt;
        }
        left -= length;
    }
    if (left != 0) {
        reason = "its lengths do not fit its size";
        return std::nullopt;
    }
    const std::uint64_t payload = number_at(header, lengths_at + 2 * number_bytes);
    return static_cast<std::size_t>(file_bytes - payload);
}

std::optional<EntryHead> decode_head(std::string_view bytes, std::uint64_t file_bytes,
                                     std::string& reason) {
    const auto size = head_bytes(bytes.substr(0, entry_header_bytes), file_bytes, reason);
    if (!size) {
        return std::nullopt;
    }
    if (bytes.size() < *size) {
        reason = "it is too short";
        return std::nullopt;
    }
    const std::string_view checked = bytes.substr(0, *size - digest_bytes);
    if (binary_digest_of(checked) != bytes.substr(checked.size(), digest_bytes)) {
        reason = "its checksum is wrong";
        return std::nullopt;
    }
    const auto key_bytes = static_cast<std::size_t>(number_at(bytes, lengths_at));
    return EntryHead{.key_text = checked.substr(entry_header_bytes, key_bytes),
                     .metadata = checked.substr(entry_header_bytes + key_bytes),
                     .payload_bytes = file_bytes - *size,
                     .bytes = *size,
                     .payload_digest = checked.substr(payload_digest_at, digest_bytes)};
}

std::optional<Entry> decode_entry(std::string_view bytes, std::string_view key_text,
                                  std::string& reason) {
    const auto head = decode_head(bytes, bytes.size(), reason);
    if (!head) {
        return std::nullopt;
    }
    const std::string_view payload = bytes.substr(head->bytes);
    if (binary_digest_of(payload) != head->payload_digest) {
        reason = "its checksum is wrong";
        return std::nullopt;
    }
    if (head->key_text != key_text) {
        reason = "it belongs to another key";
        return std::nullopt;
    }
    const auto* const begin = reinterpret_cast<const std::byte*>(payload.data());
    return Entry{.metadata = std::string(head->metadata),
                 .payload = std::vector<std::byte>(begin, begin + payload.size())};
}

}  // namespace backlight::cache
