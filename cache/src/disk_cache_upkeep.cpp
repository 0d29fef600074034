// What a DiskCache does beside loads and stores: it stays within its limit, and tells and checks
// what it holds.

#include <exception>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "cache_files.hpp"
#include "entry_file.hpp"
#include "file.hpp"
#include "upkeep.hpp"
#include "warnings.hpp"

namespace backlight::cache {

namespace {

/// One store in so many looks at the sizes, and whenever so large a part of the limit was stored.
constexpr std::uint64_t stores_per_look = 16;
constexpr std::uint64_t looks_per_limit = 16;
/// An eviction makes so large a part of the limit free, so that the next is some stores away.
constexpr std::uint64_t freed_part = 8;

/// One process at a time is enough to evict, and no other waits for it. Of the whole directory.
KeyLock eviction_lock(const std::filesystem::path& directory) {
    return KeyLock::acquire(directory / "eviction.lock", std::chrono::milliseconds::zero());
}

}  // namespace

void DiskCache::tend(const std::filesystem::path& shard, std::uint64_t stored_bytes) {
    try {
        untended_bytes_ += stored_bytes;
        const bool due = stores_ % stores_per_look == 1 ||
                         untended_bytes_ > options_.byte_limit / looks_per_limit;
        if (!due) {
            return;
        }
        untended_bytes_ = 0;
        const std::vector<CacheFile> files = files_of_shard(shard);
        swept_ += sweep_leftovers(files, options_.leftover_age, std::chrono::system_clock::now());
        // Digests spread evenly over the shards, so one tells of all; where it errs on the high
        // side the cache is small, and soon counted.
        if (bytes_of(files) > options_.byte_limit / shards) {
            keep_to_limit();
        }
    } catch (const std::exception& error) {
        tell_unwritable(error.what());
    }
}

std::vector<CacheFile> DiskCache::swept_files(std::chrono::system_clock::time_point now,
                                              std::uint64_t& swept) {
    std::vector<CacheFile> files = files_of(options_.directory);
    swept = sweep_leftovers(files, options_.leftover_age, now);
    swept_ += swept;
    return swept > 0 ? files_of(options_.directory) : std::move(files);
}

void DiskCache::keep_to_limit() {
    const KeyLock lock = eviction_lock(options_.directory);
    if (!lock.held()) {
        return;
    }
    const auto now = std::chrono::system_clock::now();
    std::uint64_t swept = 0;
    const std::vector<CacheFile> files = swept_files(now, swept);
    if (bytes_of(files) > options_.byte_limit) {
        const std::uint64_t target = options_.byte_limit - options_.byte_limit / freed_part;
        evictions_ += evict(files, std::nullopt, target, now).entries;
    }
}

PruneReport DiskCache::prune(const PruneOptions& options) noexcept {
    PruneReport report;
    try {
        if (options_.read_only) {
            report.problem = "the layer is read-only";
        } else if (standing() == Standing::refused) {
            report.problem = refusal();
        } else {
            // Held or not, as this was asked for; and no file of a dead holder stays.
            const KeyLock lock = eviction_lock(options_.directory);
            const auto now = std::chrono::system_clock::now();
            const std::vector<CacheFile> files = swept_files(now, report.leftovers);
            const Removed removed =
                evict(files, options.unused_for,
                      options.to_bytes.value_or(std::numeric_limits<std::uint64_t>::max()), now);
            report.entries = removed.entries;
            report.bytes = removed.bytes;
            evictions_ += report.entries;
            if (removed.refused > 0) {
                report.problem = std::to_string(removed.refused) + " entries could not be removed";
            }
        }
    } catch (const std::exception& error) {
        report.problem = error.what();
    }
    return report;
}

Listing DiskCache::list(Check check) const noexcept {
    Listing listing;
    try {
        if (standing() == Standing::refused) {
            listing.problem = refusal();
            return listing;
        }
        for (const CacheFile& file : files_of(options_.directory)) {
            if (file.kind != FileKind::entry) {
                continue;
            }
            std::string reason;
            std::optional<StoredEntry> entry;
            try {
                const auto opened = open_entry(file.path, reason);
                if (!opened && reason.empty()) {
                    continue;  // It went meanwhile.
                }
                if (reason.empty()) {
                    entry = describe_entry_file(*opened, file.path, check, reason);
                }
            } catch (const std::system_error& error) {
                // That it cannot be read does not say that it is bad.
                listing.problem = error.what();
                continue;
            }
            if (entry) {
                listing.entries.push_back(std::move(*entry));
            } else {
                listing.bad.push_back({file.path, std::move(reason)});
            }
        }
    } catch (const std::exception& error) {
        listing.problem = error.what();
    }
    return listing;
}

Listing DiskCache::verify(bool remove_bad) noexcept {
    Listing listing = list(Check::everything);
    if (!remove_bad || options_.read_only) {
        return listing;
    }
    try {
        for (BadEntry& bad : listing.bad) {
            bad.removed = remove_if_bad(bad.path);
            repairs_ += bad.removed ? 1 : 0;
        }
    } catch (const std::exception& error) {
        listing.problem = error.what();
    }
    return listing;
}

}  // namespace backlight::cache
