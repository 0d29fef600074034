#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "cache_files.hpp"

namespace backlight::cache {

// Takes entries away where others may read and write at the same time. A reader that has an entry
// open reads on in it; one that comes later finds none.

struct Removed {
    std::uint64_t entries = 0;
    /// Of the entries and what lay beside them.
    std::uint64_t bytes = 0;
    /// Entries that the system did not let go.
    std::uint64_t refused = 0;
};

/// The bytes of all these files.
std::uint64_t bytes_of(const std::vector<CacheFile>& files);

/// Temporaries, locks, and provenances without an entry that are older than `age`; a lock only if
/// nobody holds it.
std::uint64_t sweep_leftovers(const std::vector<CacheFile>& files, std::chrono::seconds age,
                              TimePoint now);

/// Entries that were not used for `unused_for`, then the least recently used until all files take
/// at most `byte_limit`.
Removed evict(const std::vector<CacheFile>& files, std::optional<std::chrono::seconds> unused_for,
              std::uint64_t byte_limit, TimePoint now);

}  // namespace backlight::cache
