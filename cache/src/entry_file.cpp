#include "entry_file.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "backlight/cache/trust.hpp"
#include "cache_files.hpp"
#include "digest.hpp"
#include "entry_format.hpp"

namespace backlight::cache {

namespace {

constexpr std::size_t longest_provenance = std::size_t{1} << 16U;
/// Holds most heads, so that one read is enough.
constexpr std::size_t first_read = std::size_t{1} << 14U;

/// Nothing that goes wrong with it matters.
std::string provenance_beside(const std::filesystem::path& entry) {
    try {
        const File file = File::open(beside(entry, provenance_suffix), O_RDONLY);
        if (file.opened() && file.status().is_regular()) {
            return file.read(0, longest_provenance);
        }
    } catch (const std::system_error&) {
        return {};
    }
    return {};
}

}  // namespace

std::optional<EntryFile> open_entry(const std::filesystem::path& path, std::string& reason) {
    File file = File::open(path, O_RDONLY);
    if (!file.opened()) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return std::nullopt;
        }
        const int error = errno;
        const auto there = status_of(path, Links::keep);
        if (!there || !there->is_link()) {
            throw std::system_error(error, std::generic_category(), "open an entry");
        }
        reason = "it is a symbolic link";
        return std::nullopt;
    }
    EntryFile opened{std::move(file), {}};
    opened.status = opened.file.status();
    const Ownership ownership{
        .owner = opened.status.owner, .group = opened.status.group, .mode = opened.status.mode};
    if (auto distrusted = reason_to_distrust(ownership, TrustedAs::file, Identity::of_process())) {
        reason = "it " + *distrusted;
    } else if (opened.status.bytes > largest_entry_bytes) {
        reason = "it is too large";
    }
    return opened;
}

std::optional<Entry> read_entry(const EntryFile& opened, std::string_view key_text,
                                std::string& reason) {
    const std::string bytes = opened.file.read(0, static_cast<std::size_t>(opened.status.bytes));
    return decode_entry(bytes, key_text, reason);
}

std::optional<StoredEntry> describe_entry(std::string_view bytes, std::uint64_t entry_bytes,
                                          Check check, std::string& reason) {
    const auto head = decode_head(bytes, entry_bytes, reason);
    if (!head) {
        return std::nullopt;
    }
    if (check == Check::everything &&
        binary_digest_of(bytes.substr(head->bytes)) != head->payload_digest) {
        reason = "its checksum is wrong";
        return std::nullopt;
    }
    auto key = Key::from_text(head->key_text);
    if (!key) {
        reason = "its key is not one";
        return std::nullopt;
    }
    return StoredEntry{.path = {},
                       .key = std::move(*key),
                       .metadata = std::string(head->metadata),
                       .payload_bytes = head->payload_bytes,
                       .bytes = entry_bytes};
}

std::optional<StoredEntry> describe_entry_file(const EntryFile& opened,
                                               const std::filesystem::path& path, Check check,
                                               std::string& reason) {
    const std::uint64_t size = opened.status.bytes;
    const std::size_t wanted = check == Check::everything
                                   ? static_cast<std::size_t>(size)
                                   : std::min(first_read, static_cast<std::size_t>(size));
    std::string bytes = opened.file.read(0, wanted);
    const auto head = head_bytes(bytes, size, reason);
    if (!head) {
        return std::nullopt;
    }
    if (*head > bytes.size()) {
        bytes = opened.file.read(0, *head);
    }
    auto entry = describe_entry(bytes, size, check, reason);
    if (!entry) {
        return std::nullopt;
    }
    const std::filesystem::path directory = path.parent_path().parent_path();
    if (place_of(directory, entry->key.digest(), entry_suffix) != path) {
        reason = "it belongs to another key";
        return std::nullopt;
    }
    entry->path = path;
    entry->last_used = opened.status.modified;
    entry->provenance = provenance_beside(path);
    return entry;
}

bool remove_if_bad(const std::filesystem::path& path) {
    std::string reason;
    const auto opened = open_entry(path, reason);
    if (opened && reason.empty() && describe_entry_file(*opened, path, Check::everything, reason)) {
        return false;
    }
    return !reason.empty() && (!opened || opened->file.is_at(path)) && remove_file(path);
}

}  // namespace backlight::cache
