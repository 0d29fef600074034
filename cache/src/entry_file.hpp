#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "backlight/cache/layer.hpp"
#include "file.hpp"

namespace backlight::cache {

/// An entry's file, opened.
struct EntryFile {
    File file;
    FileStatus status;
};

/// Null where there is none. `reason` then stays empty, unless a link is in its place; it is set as
/// well where the file is there but not to be used. What else goes wrong throws.
std::optional<EntryFile> open_entry(const std::filesystem::path& path, std::string& reason);

/// The entry of that key in the file; null with a reason where it is not whole.
std::optional<Entry> read_entry(const EntryFile& opened, std::string_view key_text,
                                std::string& reason);

/// What a listing tells of the bytes of an entry; null with a reason where they are not whole.
/// `bytes` holds the head at least, all where payloads are checked.
std::optional<StoredEntry> describe_entry(std::string_view bytes, std::uint64_t entry_bytes,
                                          Check check, std::string& reason);

/// The same of a file, whose head alone is read where that is enough.
std::optional<StoredEntry> describe_entry_file(const EntryFile& opened,
                                               const std::filesystem::path& path, Check check,
                                               std::string& reason);

/// Removes an entry of a directory if it is bad, looked at anew.
bool remove_if_bad(const std::filesystem::path& path);

}  // namespace backlight::cache
