#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/cache/key.hpp"

namespace backlight::cache {

struct Entry {
    /// Small text that the cache keeps beside the payload and does not read.
    std::string metadata;
    std::vector<std::byte> payload;

    bool operator==(const Entry&) const = default;
};

/// Entries in a directory, one file each, found by the content of their keys alone: a directory
/// that is copied elsewhere hits there as well. The cache never decides: whatever is wrong with the
/// disk is a miss, told once. Safe to use from many threads and processes.
class DiskCache {
  public:
    using WarningSink = std::function<void(std::string_view)>;

    /// Touches nothing; the directory is made, for its owner alone, by the first `store`.
    DiskCache(std::filesystem::path directory, WarningSink warn);

    /// The entry of that key. A file that is not a whole entry of that very key is removed, and is
    /// a miss.
    std::optional<Entry> load(const Key& key) noexcept;

    /// Writes the entry to a temporary beside its place and renames it there, so that a reader
    /// finds the whole entry or none. False, with a warning, where that fails.
    bool store(const Key& key, const Entry& entry) noexcept;

    const std::filesystem::path& directory() const noexcept { return directory_; }

    /// Where the entry of a key lies.
    std::filesystem::path path_of(const Key& key) const;

  private:
    /// Tells the text that the parts make up, unless it was told before: a text names the kind of
    /// problem and the path. Put together inside, so that no caller throws for want of memory.
    void warn_once(std::initializer_list<std::string_view> parts) noexcept;

    std::filesystem::path directory_;
    WarningSink warn_;
    std::mutex warned_mutex_;
    std::set<std::string> warned_;
};

/// The directory in force, from the values of BACKLIGHT_CACHE_PATH, XDG_CACHE_HOME and HOME; null
/// stands for a variable that is not set. Empty where none tells one: then entries are kept in
/// memory only.
std::filesystem::path default_directory(const char* cache_path, const char* xdg_cache_home,
                                        const char* home);

}  // namespace backlight::cache
