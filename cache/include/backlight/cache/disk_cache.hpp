#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backlight/cache/entry.hpp"
#include "backlight/cache/key.hpp"
#include "backlight/cache/key_lock.hpp"
#include "backlight/cache/layer.hpp"

namespace backlight::cache {

struct CacheFile;
struct FileStatus;
class Warnings;

struct DiskCacheOptions {
    std::filesystem::path directory = {};
    /// Nothing is written, removed or stamped, and root may own it.
    bool read_only = false;
    /// Directories and files are made readable by all, for a layer that is made to be shared.
    bool readable_by_others = false;
    /// All files together keep to it, but for what is stored between two looks at their sizes.
    std::uint64_t byte_limit = std::uint64_t{1} << 30U;
    /// How exactly the last use of an entry is known: a hit within it writes nothing.
    std::chrono::seconds stamp_interval = std::chrono::minutes(10);
    /// Temporaries and locks are taken for those of dead processes after it.
    std::chrono::seconds leftover_age = std::chrono::hours(1);
};

struct DiskCacheCounters {
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t stores = 0;
    std::uint64_t failed_stores = 0;
    std::uint64_t evictions = 0;
    /// Entries that were removed because they were bad.
    std::uint64_t repairs = 0;
    /// Leftovers of dead processes that were removed.
    std::uint64_t swept = 0;
    std::uint64_t lock_timeouts = 0;

    bool operator==(const DiskCacheCounters&) const = default;
};

struct PruneOptions {
    /// Removes what was not used for so long.
    std::optional<std::chrono::seconds> unused_for = {};
    /// Removes the least recently used until the rest fits; zero removes all.
    std::optional<std::uint64_t> to_bytes = {};
};

struct PruneReport {
    std::uint64_t entries = 0;
    std::uint64_t bytes = 0;
    std::uint64_t leftovers = 0;
    /// Why it was not done, or only in part; empty otherwise.
    std::string problem = {};
};

/// Entries in a directory, one file each, found by the content of their keys alone: a directory
/// that is copied elsewhere hits there as well. The cache never decides: whatever is wrong with the
/// disk is a miss, told once. Safe to use from many threads and processes. A directory that is not
/// to be trusted (trust.hpp) is not used.
class DiskCache : public Layer {
  public:
    using WarningSink = cache::WarningSink;

    /// Touches nothing; the directory is made, for its owner alone, by the first `store`.
    DiskCache(DiskCacheOptions options, WarningSink warn);
    DiskCache(std::filesystem::path directory, WarningSink warn);
    ~DiskCache() override;

    /// The entry of that key. A file that is not a whole entry of that very key is a miss, and is
    /// removed.
    std::optional<Entry> load(const Key& key) noexcept override;
    bool holds(const Key& key) const noexcept override;

    /// Writes the entry to a temporary beside its place and renames it there, so that a reader
    /// finds the whole entry or none. False, with a warning, where that fails. `provenance` is text
    /// that may differ between two makers of the same entry; it is kept beside the entry, and its
    /// loss is no harm.
    bool store(const Key& key, const Entry& entry, std::string_view provenance = {}) noexcept;

    /// Waits for the lock of that key. Between the lock and the making, look again: the one before
    /// has mostly stored the entry.
    KeyLock lock(const Key& key, std::chrono::milliseconds timeout) noexcept;
    /// Does not wait: `timed_out` where another holds it, which is neither told nor counted.
    KeyLock try_lock(const Key& key) noexcept;

    /// Removes an entry that proved unfit for use though it is whole.
    void reject(const Key& key) noexcept;

    Listing list(Check check) const noexcept override;
    /// Checks every entry, and removes the bad ones if so asked. The listing tells them all.
    Listing verify(bool remove_bad) noexcept;
    PruneReport prune(const PruneOptions& options) noexcept;

    DiskCacheCounters counters() const noexcept;
    const std::filesystem::path& directory() const noexcept { return options_.directory; }
    const DiskCacheOptions& options() const noexcept { return options_; }

    /// Where the entry of a key lies.
    std::filesystem::path path_of(const Key& key) const;

    std::filesystem::path location() const override { return options_.directory; }
    const char* kind() const noexcept override { return "directory"; }
    std::string refusal() const override;
    std::uint64_t hits() const noexcept override { return hits_; }

  private:
    enum class Standing { trusted, absent, refused };

    /// Whether the directory is there and to be trusted, now.
    Standing standing() const;
    KeyLock acquire_lock(const Key& key, std::chrono::milliseconds timeout, bool told) noexcept;
    std::optional<Entry> load_checked(const Key& key);
    void store_checked(const Key& key, const std::string& bytes, std::string_view provenance);
    /// Now and then at a store: sweeps the shard that was written, and takes its size for a sample
    /// of all.
    void tend(const std::filesystem::path& shard, std::uint64_t stored_bytes);
    void keep_to_limit();
    /// All files that are left when leftovers have been swept, and how many of these there were.
    std::vector<CacheFile> swept_files(std::chrono::system_clock::time_point now,
                                       std::uint64_t& swept);
    void tell_unreadable(const char* what) const noexcept;
    void tell_unwritable(const char* what) const noexcept;

    DiskCacheOptions options_;
    std::unique_ptr<Warnings> warnings_;

    mutable std::mutex standing_mutex_;
    /// The directory as it was when the whole way to it was found trustworthy.
    mutable std::unique_ptr<FileStatus> approved_;
    mutable std::string refusal_;

    std::atomic<std::uint64_t> hits_ = 0;
    std::atomic<std::uint64_t> misses_ = 0;
    std::atomic<std::uint64_t> stores_ = 0;
    std::atomic<std::uint64_t> failed_stores_ = 0;
    std::atomic<std::uint64_t> evictions_ = 0;
    std::atomic<std::uint64_t> repairs_ = 0;
    std::atomic<std::uint64_t> swept_ = 0;
    std::atomic<std::uint64_t> lock_timeouts_ = 0;
    std::atomic<std::uint64_t> untended_bytes_ = 0;
};

/// The directory in force, from the values of BACKLIGHT_CACHE_PATH, XDG_CACHE_HOME and HOME; null
/// stands for a variable that is not set. Empty where none tells one: then entries are kept in
/// memory only.
std::filesystem::path default_directory(const char* cache_path, const char* xdg_cache_home,
                                        const char* home);

}  // namespace backlight::cache
