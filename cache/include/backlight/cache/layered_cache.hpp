#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "backlight/cache/entry.hpp"
#include "backlight/cache/key.hpp"
#include "backlight/cache/key_lock.hpp"
#include "backlight/cache/layer.hpp"

namespace backlight::cache {

/// Where shipped entries are: a pack in memory, or else what lies at a path.
struct ReadOnlyLayer {
    /// A directory of entries, or the file of a pack. A directory may come to be later.
    std::filesystem::path path = {};
    /// Must outlive the cache.
    std::span<const std::byte> pack = {};
    /// What a pack in memory is called in warnings and listings.
    std::string name = "embedded";
};

struct LayeredCacheOptions {
    /// Looked in first, in this order.
    std::vector<ReadOnlyLayer> read_only = {};
    /// The one that is written, looked in last. Without a directory there is none; `read_only` is
    /// not looked at.
    DiskCacheOptions writable = {};
};

struct LayerHit {
    Entry entry;
    /// Counted from the first.
    std::size_t layer = 0;
};

/// An entry that differs from a key in the fewest fields.
struct NearEntry {
    StoredEntry stored;
    std::size_t layer = 0;
    std::vector<FieldDifference> differences;
};

struct LayerState {
    std::filesystem::path location;
    /// "directory", "pack", "pack in memory".
    std::string kind;
    bool writable = false;
    /// Why nothing of it is used; empty where it is used or not there.
    std::string refusal;
    std::uint64_t hits = 0;
};

struct LayeredCacheCounters {
    std::vector<std::uint64_t> hits_by_layer;
    /// Loads that no layer served.
    std::uint64_t misses = 0;
    std::uint64_t refused_layers = 0;
    /// Stores, evictions, repairs and the like; its hits are the last of `hits_by_layer`.
    DiskCacheCounters writable;
};

/// Read-only layers, such as those of a system or of an application, in front of one that is
/// written. The way of a caller that wants an entry made once by all processes:
///
///     load; if nothing: lock; load_again; if nothing: make it, store it; free the lock
///
/// and a SingleFlight around it, so that threads of one process make it once too.
class LayeredCache {
  public:
    LayeredCache(LayeredCacheOptions options, const WarningSink& warn);

    /// Of the first layer that has it.
    std::optional<LayerHit> load(const Key& key) noexcept;
    /// Of the writable layer, for a caller that has waited for the lock: not counted as a second
    /// miss.
    std::optional<LayerHit> load_again(const Key& key) noexcept;
    /// Into the writable layer; false where that fails or there is none.
    bool store(const Key& key, const Entry& entry, std::string_view provenance = {}) noexcept;
    /// Of the writable layer; unavailable where there is none.
    KeyLock lock(const Key& key, std::chrono::milliseconds timeout) noexcept;
    KeyLock try_lock(const Key& key) noexcept;
    /// Tells that the entry of that layer proved unfit for use: it is removed, or, in a read-only
    /// layer, not looked at again by this object, so that a later load goes on to the next layer.
    void reject(const Key& key, std::size_t layer) noexcept;

    /// The layer that `load` would hit. Changes and counts nothing.
    std::optional<std::size_t> locate(const Key& key) const noexcept;
    /// Those whose keys differ from this one in the fewest fields, of all layers; the last used
    /// first, at most so many. An entry of that very key, which differs in none, counts as well.
    /// Only those whose keys are `comparable`; without it all are.
    std::vector<NearEntry> nearest(
        const Key& key, std::size_t most,
        const std::function<bool(const Key&)>& comparable = {}) const noexcept;

    /// In the order in which they are looked in.
    std::size_t layer_count() const noexcept { return layers_.size(); }
    const Layer& layer(std::size_t index) const { return *layers_.at(index); }
    std::vector<LayerState> states() const;
    /// Null where there is none.
    DiskCache* writable() noexcept { return writable_; }
    const DiskCache* writable() const noexcept { return writable_; }

    LayeredCacheCounters counters() const;

  private:
    bool is_rejected(const Key& key, std::size_t layer) const;

    std::vector<std::unique_ptr<Layer>> layers_;
    DiskCache* writable_ = nullptr;

    mutable std::mutex rejected_mutex_;
    /// In read-only layers: layer and key text.
    std::set<std::pair<std::size_t, std::string>> rejected_;
    std::atomic<bool> any_rejected_ = false;
    std::atomic<std::uint64_t> misses_ = 0;
};

}  // namespace backlight::cache
