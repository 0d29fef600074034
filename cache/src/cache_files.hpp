#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "file.hpp"

namespace backlight::cache {

// How entries lie in a directory: a folder, the shard, for the first two digits of a digest, and in
// it for the other digits
//
//     <digits>.entry                       the entry
//     <digits>.provenance                  where it came from; may be missing
//     <digits>.lock                        held while the entry is made
//     <name>.temporary.<random letters>    an entry or a provenance that is being written

inline constexpr std::size_t shard_digits = 2;
inline constexpr std::size_t shards = 256;
inline constexpr std::string_view entry_suffix = ".entry";
inline constexpr std::string_view provenance_suffix = ".provenance";
inline constexpr std::string_view lock_suffix = ".lock";

enum class FileKind { entry, provenance, lock, temporary, foreign };

/// Foreign is whatever the cache does not make; it is never touched.
FileKind kind_of(std::string_view name);

/// Of one digest.
std::filesystem::path place_of(const std::filesystem::path& directory, std::string_view digest,
                               std::string_view suffix);

/// The file of another kind beside an entry.
std::filesystem::path beside(const std::filesystem::path& entry, std::string_view suffix);

struct CacheFile {
    std::filesystem::path path;
    FileKind kind = FileKind::foreign;
    FileStatus status;
};

/// The files in a shard but for the foreign ones, sorted by name; those that go meanwhile are left
/// out.
std::vector<CacheFile> files_of_shard(const std::filesystem::path& shard);

/// Those of all shards.
std::vector<CacheFile> files_of(const std::filesystem::path& directory);

}  // namespace backlight::cache
