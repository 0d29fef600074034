#include "backlight/cache/disk_cache.hpp"

#include <exception>
#include <stdexcept>
#include <utility>

#include "backlight/cache/trust.hpp"
#include "cache_files.hpp"
#include "entry_file.hpp"
#include "entry_format.hpp"
#include "file.hpp"
#include "warnings.hpp"

namespace backlight::cache {

DiskCache::DiskCache(DiskCacheOptions options, WarningSink warn)
    : options_(std::move(options)), warnings_(std::make_unique<Warnings>(std::move(warn))) {}

DiskCache::DiskCache(std::filesystem::path directory, WarningSink warn)
    : DiskCache(DiskCacheOptions{.directory = std::move(directory)}, std::move(warn)) {}

DiskCache::~DiskCache() = default;

std::filesystem::path DiskCache::path_of(const Key& key) const {
    return place_of(options_.directory, key.digest(), entry_suffix);
}

DiskCache::Standing DiskCache::standing() const {
    const auto now = status_of(options_.directory, Links::follow);
    const std::lock_guard lock(standing_mutex_);
    if (now && approved_ && now->is_same_file(*approved_) && now->mode == approved_->mode &&
        now->owner == approved_->owner && now->group == approved_->group) {
        return Standing::trusted;
    }
    approved_.reset();
    refusal_.clear();
    const TrustVerdict verdict = judge_path(
        options_.directory,
        options_.read_only ? TrustedAs::read_only_directory : TrustedAs::writable_directory,
        Identity::of_process());
    switch (verdict.kind) {
        case TrustVerdict::Kind::absent:
            return Standing::absent;
        case TrustVerdict::Kind::trusted:
            approved_ = now ? std::make_unique<FileStatus>(*now) : nullptr;
            return Standing::trusted;
        case TrustVerdict::Kind::refused:
            break;
    }
    refusal_ = verdict.reason;
    warnings_->tell_once({"the cache at ", options_.directory.native(),
                          " is not used, as others could put code there: ", refusal_});
    return Standing::refused;
}

std::string DiskCache::refusal() const {
    const std::lock_guard lock(standing_mutex_);
    return refusal_;
}

std::optional<Entry> DiskCache::load(const Key& key) noexcept {
    try {
        if (standing() == Standing::trusted) {
            if (auto entry = load_checked(key)) {
                ++hits_;
                return entry;
            }
        }
    } catch (const std::exception& error) {
        tell_unreadable(error.what());
    }
    ++misses_;
    return std::nullopt;
}

std::optional<Entry> DiskCache::load_checked(const Key& key) {
    const std::filesystem::path path = path_of(key);
    std::string reason;
    const auto opened = open_entry(path, reason);
    if (!opened && reason.empty()) {
        return std::nullopt;
    }
    if (reason.empty()) {
        if (auto entry = read_entry(*opened, key.text(), reason)) {
            const auto age = std::chrono::system_clock::now() - opened->status.modified;
            // A clock may have been ahead when the stamp was set.
            if (!options_.read_only && std::chrono::abs(age) > options_.stamp_interval) {
                opened->file.touch();
            }
            return entry;
        }
    }
    warnings_->tell_once({"cache entry ", path.native(), " is not used",
                          options_.read_only ? ": " : " and will be replaced: ", reason});
    // Another process may have replaced it meanwhile.
    if (!options_.read_only && (!opened || opened->file.is_at(path)) && remove_file(path)) {
        ++repairs_;
    }
    return std::nullopt;
}

bool DiskCache::holds(const Key& key) const noexcept {
    try {
        std::string reason;
        const auto opened = standing() == Standing::trusted ? open_entry(path_of(key), reason)
                                                            : std::optional<EntryFile>();
        return opened && reason.empty() && read_entry(*opened, key.text(), reason);
    } catch (const std::exception&) {
        return false;
    }
}

bool DiskCache::store(const Key& key, const Entry& entry, std::string_view provenance) noexcept {
    if (options_.read_only) {
        return false;
    }
    try {
        if (standing() != Standing::refused) {
            const std::string bytes = encode_entry(key.text(), entry);
            if (bytes.size() > largest_entry_bytes || bytes.size() > options_.byte_limit) {
                throw std::length_error("an entry is larger than the cache may be");
            }
            store_checked(key, bytes, provenance);
            ++stores_;
            tend(path_of(key).parent_path(), bytes.size());
            return true;
        }
    } catch (const std::exception& error) {
        tell_unwritable(error.what());
    }
    ++failed_stores_;
    return false;
}

void DiskCache::store_checked(const Key& key, const std::string& bytes,
                              std::string_view provenance) {
    const std::filesystem::path path = path_of(key);
    make_directories(path.parent_path(), options_.readable_by_others);
    // Another may have made the directory first.
    if (standing() != Standing::trusted) {
        throw std::runtime_error("its directory was replaced");
    }
    publish(path, bytes, {.readable_by_others = options_.readable_by_others});
    const std::filesystem::path beside_entry = beside(path, provenance_suffix);
    if (provenance.empty()) {
        remove_file(beside_entry);
        return;
    }
    try {
        publish(beside_entry, provenance,
                {.readable_by_others = options_.readable_by_others, .synchronise = false});
    } catch (const std::exception&) {
        // The entry is there. What an earlier maker said of it must not stay.
        remove_file(beside_entry);
    }
}

KeyLock DiskCache::lock(const Key& key, std::chrono::milliseconds timeout) noexcept {
    return acquire_lock(key, timeout, true);
}

KeyLock DiskCache::try_lock(const Key& key) noexcept {
    return acquire_lock(key, std::chrono::milliseconds(0), false);
}

KeyLock DiskCache::acquire_lock(const Key& key, std::chrono::milliseconds timeout,
                                bool told) noexcept {
    try {
        if (options_.read_only || standing() == Standing::refused) {
            return {};
        }
        const std::filesystem::path path = place_of(options_.directory, key.digest(), lock_suffix);
        make_directories(path.parent_path(), options_.readable_by_others);
        KeyLock lock = KeyLock::acquire(path, timeout);
        if (told && lock.state() == KeyLock::State::timed_out) {
            ++lock_timeouts_;
            warnings_->tell_once(
                {"another process has held ", path.native(), " for too long: going on without it"});
        }
        return lock;
    } catch (const std::exception&) {
        // The store that follows will tell what is wrong.
        return {};
    }
}

void DiskCache::reject(const Key& key) noexcept {
    try {
        if (!options_.read_only && standing() == Standing::trusted && remove_file(path_of(key))) {
            ++repairs_;
        }
    } catch (const std::exception& error) {
        tell_unwritable(error.what());
    }
}

DiskCacheCounters DiskCache::counters() const noexcept {
    return {.hits = hits_,
            .misses = misses_,
            .stores = stores_,
            .failed_stores = failed_stores_,
            .evictions = evictions_,
            .repairs = repairs_,
            .swept = swept_,
            .lock_timeouts = lock_timeouts_};
}

void DiskCache::tell_unreadable(const char* what) const noexcept {
    warnings_->tell_once({"the cache at ", options_.directory.native(),
                          " cannot be read, and kernels are compiled anew: ", what});
}

void DiskCache::tell_unwritable(const char* what) const noexcept {
    warnings_->tell_once({"the cache at ", options_.directory.native(),
                          " cannot be written, and kernels are kept in memory only: ", what});
}

}  // namespace backlight::cache
