#include "cache_files.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace backlight::cache {

namespace {

constexpr std::size_t digest_digits = 32;
constexpr std::string_view temporary_mark = ".temporary.";

bool all_hexadecimal(std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool ends_with_kind(std::string_view name, std::string_view suffix) {
    return name.size() == digest_digits - shard_digits + suffix.size() && name.ends_with(suffix) &&
           all_hexadecimal(name.substr(0, digest_digits - shard_digits));
}

}  // namespace

FileKind kind_of(std::string_view name) {
    if (ends_with_kind(name, entry_suffix)) {
        return FileKind::entry;
    }
    if (ends_with_kind(name, provenance_suffix)) {
        return FileKind::provenance;
    }
    if (ends_with_kind(name, lock_suffix)) {
        return FileKind::lock;
    }
    const std::size_t mark = name.find(temporary_mark);
    if (mark != std::string_view::npos) {
        const FileKind of = kind_of(name.substr(0, mark));
        if (of == FileKind::entry || of == FileKind::provenance) {
            return FileKind::temporary;
        }
    }
    return FileKind::foreign;
}

std::filesystem::path place_of(const std::filesystem::path& directory, std::string_view digest,
                               std::string_view suffix) {
    std::string name(digest.substr(shard_digits));
    name += suffix;
    return directory / digest.substr(0, shard_digits) / name;
}

std::filesystem::path beside(const std::filesystem::path& entry, std::string_view suffix) {
    return std::filesystem::path(entry).replace_extension(suffix);
}

std::vector<CacheFile> files_of_shard(const std::filesystem::path& shard) {
    std::vector<CacheFile> files;
    for (const std::string& name : names_in(shard)) {
        const FileKind kind = kind_of(name);
        if (kind == FileKind::foreign) {
            continue;
        }
        std::filesystem::path path = shard / name;
        if (const auto status = status_of(path, Links::keep)) {
            files.push_back({std::move(path), kind, *status});
        }
    }
    return files;
}

std::vector<CacheFile> files_of(const std::filesystem::path& directory) {
    std::vector<CacheFile> files;
    for (const std::string& name : names_in(directory)) {
        if (name.size() == shard_digits && all_hexadecimal(name)) {
            std::vector<CacheFile> shard = files_of_shard(directory / name);
            std::move(shard.begin(), shard.end(), std::back_inserter(files));
        }
    }
    return files;
}

}  // namespace backlight::cache
