#include "backlight/cache/layered_cache.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <system_error>

#include "backlight/cache/pack.hpp"

namespace backlight::cache {

LayeredCache::LayeredCache(LayeredCacheOptions options, const WarningSink& warn) {
    for (ReadOnlyLayer& layer : options.read_only) {
        std::error_code unknown;
        if (!layer.pack.empty()) {
            layers_.push_back(std::make_unique<Pack>(layer.pack, std::move(layer.name), warn));
        } else if (std::filesystem::is_regular_file(layer.path, unknown)) {
            layers_.push_back(std::make_unique<Pack>(layer.path, warn));
        } else {
            layers_.push_back(std::make_unique<DiskCache>(
                DiskCacheOptions{.directory = std::move(layer.path), .read_only = true}, warn));
        }
    }
    if (!options.writable.directory.empty()) {
        options.writable.read_only = false;
        auto writable = std::make_unique<DiskCache>(std::move(options.writable), warn);
        writable_ = writable.get();
        layers_.push_back(std::move(writable));
    }
}

bool LayeredCache::is_rejected(const Key& key, std::size_t layer) const {
    if (!any_rejected_) {
        return false;
    }
    const std::lock_guard lock(rejected_mutex_);
    return rejected_.contains({layer, key.text()});
}

std::optional<LayerHit> LayeredCache::load(const Key& key) noexcept {
    try {
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            if (is_rejected(key, i)) {
                continue;
            }
            if (auto entry = layers_[i]->load(key)) {
                return LayerHit{std::move(*entry), i};
            }
        }
    } catch (const std::exception&) {
        // No memory for the look; a miss, as all else.
    }
    ++misses_;
    return std::nullopt;
}

std::optional<LayerHit> LayeredCache::load_again(const Key& key) noexcept {
    if (writable_ != nullptr) {
        if (auto entry = writable_->load(key)) {
            return LayerHit{std::move(*entry), layers_.size() - 1};
        }
    }
    return std::nullopt;
}

bool LayeredCache::store(const Key& key, const Entry& entry, std::string_view provenance) noexcept {
    return writable_ != nullptr && writable_->store(key, entry, provenance);
}

KeyLock LayeredCache::lock(const Key& key, std::chrono::milliseconds timeout) noexcept {
    return writable_ != nullptr ? writable_->lock(key, timeout) : KeyLock();
}

KeyLock LayeredCache::try_lock(const Key& key) noexcept {
    return writable_ != nullptr ? writable_->try_lock(key) : KeyLock();
}

void LayeredCache::reject(const Key& key, std::size_t layer) noexcept {
    if (writable_ != nullptr && layer + 1 == layers_.size()) {
        writable_->reject(key);
        return;
    }
    try {
        const std::lock_guard lock(rejected_mutex_);
        rejected_.emplace(layer, key.text());
        any_rejected_ = true;
    } catch (const std::exception&) {
        // No memory to remember it: then it is found, and rejected, again.
        return;
    }
}

std::optional<std::size_t> LayeredCache::locate(const Key& key) const noexcept {
    try {
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            if (!is_rejected(key, i) && layers_[i]->holds(key)) {
                return i;
            }
        }
    } catch (const std::exception&) {
        return std::nullopt;
    }
    return std::nullopt;
}

std::vector<NearEntry> LayeredCache::nearest(
    const Key& key, std::size_t most,
    const std::function<bool(const Key&)>& comparable) const noexcept {
    try {
        std::vector<NearEntry> near;
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            for (StoredEntry& stored : layers_[i]->list(Check::heads).entries) {
                if (comparable && !comparable(stored.key)) {
                    continue;
                }
                auto differences = differing_fields(key, stored.key);
                if (!near.empty() && differences.size() > near.front().differences.size()) {
                    continue;
                }
                if (!near.empty() && differences.size() < near.front().differences.size()) {
                    near.clear();
                }
                near.push_back({std::move(stored), i, std::move(differences)});
            }
        }
        // Packs know no last use, and come last.
        std::stable_sort(near.begin(), near.end(), [](const NearEntry& one, const NearEntry& two) {
            return one.stored.last_used > two.stored.last_used;
        });
        near.erase(
            std::next(near.begin(), static_cast<std::ptrdiff_t>(std::min(most, near.size()))),
            near.end());
        return near;
    } catch (const std::exception&) {
        return {};
    }
}

std::vector<LayerState> LayeredCache::states() const {
    std::vector<LayerState> states;
    for (const auto& layer : layers_) {
        states.push_back({.location = layer->location(),
                          .kind = layer->kind(),
                          .writable = layer.get() == writable_,
                          .refusal = layer->refusal(),
                          .hits = layer->hits()});
    }
    return states;
}

LayeredCacheCounters LayeredCache::counters() const {
    LayeredCacheCounters counters;
    for (const auto& layer : layers_) {
        counters.hits_by_layer.push_back(layer->hits());
        counters.refused_layers += layer->refusal().empty() ? 0 : 1;
    }
    counters.misses = misses_;
    if (writable_ != nullptr) {
        counters.writable = writable_->counters();
    }
    return counters;
}

}  // namespace backlight::cache
