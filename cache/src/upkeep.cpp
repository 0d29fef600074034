#include "upkeep.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>

namespace backlight::cache {

namespace {

/// Whether nobody holds the lock; it is removed then.
bool remove_free_lock(const std::filesystem::path& path) {
    const File file = File::open(path, O_RDWR);
    // Held while the file goes, so that who waits for this file sees that it is gone, and who comes
    // later makes another (see KeyLock::acquire).
    if (!file.opened() || !file.try_lock().value_or(false) || !file.is_at(path)) {
        return false;
    }
    const bool removed = remove_file(path);
    file.unlock();
    return removed;
}

struct Candidate {
    const CacheFile* entry = nullptr;
    std::uint64_t bytes = 0;
};

/// The entries with what lies beside them, least recently used first.
std::vector<Candidate> by_last_use(const std::vector<CacheFile>& files) {
    std::map<std::string, std::uint64_t> bytes_beside;
    std::vector<Candidate> candidates;
    for (const CacheFile& file : files) {
        if (file.kind == FileKind::entry) {
            candidates.push_back({&file, file.status.bytes});
        } else if (file.kind == FileKind::provenance) {
            bytes_beside[beside(file.path, entry_suffix).native()] = file.status.bytes;
        }
    }
    for (Candidate& candidate : candidates) {
        if (const auto found = bytes_beside.find(candidate.entry->path.native());
            found != bytes_beside.end()) {
            candidate.bytes += found->second;
        }
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& one, const Candidate& other) {
                         return one.entry->status.modified < other.entry->status.modified;
                     });
    return candidates;
}

enum class Removal { removed, changed, refused };

Removal remove_entry(const CacheFile& entry) {
    // It may have been used, or written anew, since it was listed.
    const auto now = status_of(entry.path, Links::keep);
    if (!now || *now != entry.status) {
        return Removal::changed;
    }
    if (!remove_file(entry.path)) {
        return errno == ENOENT ? Removal::changed : Removal::refused;
    }
    remove_file(beside(entry.path, provenance_suffix));
    return Removal::removed;
}

}  // namespace

std::uint64_t bytes_of(const std::vector<CacheFile>& files) {
    std::uint64_t bytes = 0;
    for (const CacheFile& file : files) {
        bytes += file.status.bytes;
    }
    return bytes;
}

std::uint64_t sweep_leftovers(const std::vector<CacheFile>& files, std::chrono::seconds age,
                              TimePoint now) {
    std::uint64_t removed = 0;
    for (const CacheFile& file : files) {
        // A clock may have been ahead when it was written.
        if (file.kind == FileKind::entry || std::chrono::abs(now - file.status.modified) < age) {
            continue;
        }
        if (file.kind == FileKind::provenance &&
            status_of(beside(file.path, entry_suffix), Links::keep)) {
            continue;
        }
        const bool gone =
            file.kind == FileKind::lock ? remove_free_lock(file.path) : remove_file(file.path);
        removed += gone ? 1 : 0;
    }
    return removed;
}

Removed evict(const std::vector<CacheFile>& files, std::optional<std::chrono::seconds> unused_for,
              std::uint64_t byte_limit, TimePoint now) {
    Removed removed;
    // With what is being written, and what a writer that was killed has left: it takes its room.
    std::uint64_t bytes = bytes_of(files);
    for (const Candidate& candidate : by_last_use(files)) {
        const bool unused = unused_for && now - candidate.entry->status.modified >= *unused_for;
        if (!unused && bytes <= byte_limit) {
            break;
        }
        switch (remove_entry(*candidate.entry)) {
            case Removal::removed:
                bytes -= candidate.bytes;
                removed.bytes += candidate.bytes;
                ++removed.entries;
                break;
            case Removal::refused:
                ++removed.refused;
                break;
            case Removal::changed:
                break;
        }
    }
    return removed;
}

}  // namespace backlight::cache
