#include "tensor_map/tensor_map_cache.hpp"

#include <cstring>

namespace backlight::tensor_map {

std::array<std::uint64_t, TensorMapCache::key_words> TensorMapCache::words_of(
    const CacheKey& key) noexcept {
    return {key.address,
            static_cast<std::uint64_t>(key.stride_batch),
            static_cast<std::uint64_t>(key.stride_head),
            static_cast<std::uint64_t>(key.stride_seqlen),
            static_cast<std::uint64_t>(key.seqlen),
            static_cast<std::uint64_t>(key.heads),
            static_cast<std::uint64_t>(key.head_dim),
            static_cast<std::uint64_t>(key.rows)};
}

std::size_t TensorMapCache::first_slot_of(const CacheKey& key) noexcept {
    std::uint64_t hash = 0;
    for (const std::uint64_t word : words_of(key)) {
        // Multiplication carries only upwards: the slot is taken from the top bits.
        hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
        hash ^= hash >> 32U;
    }
    static_assert(slot_count == 256, "eight bits choose a slot");
    return (hash * 0x9e3779b97f4a7c15U) >> 56U;
}

bool TensorMapCache::find(const CacheKey& key, kernel::TensorMap& map) const noexcept {
    const std::size_t first = first_slot_of(key);
    for (std::size_t i = 0; i < neighbours; ++i) {
        if (read(slots_[(first + i) % slot_count], key, map)) {
            return true;
        }
    }
    return false;
}

bool TensorMapCache::read(const Slot& slot, const CacheKey& key, kernel::TensorMap& map) noexcept {
    const std::uint64_t before = slot.sequence.load(std::memory_order_acquire);
    if (before == 0 || before % 2 == 1) {
        return false;
    }
    bool same = true;
    const auto wanted = words_of(key);
    for (std::size_t i = 0; i < key_words; ++i) {
        same = same && slot.key[i].load(std::memory_order_relaxed) == wanted[i];
    }
    if (!same) {
        return false;
    }
    std::array<std::uint64_t, map_words> words{};
    for (std::size_t i = 0; i < map_words; ++i) {
        words[i] = slot.map[i].load(std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (slot.sequence.load(std::memory_order_relaxed) != before) {
        return false;
    }
    std::memcpy(map.opaque, words.data(), sizeof(map.opaque));
    return true;
}

TensorMapCache::Slot& TensorMapCache::slot_for(const CacheKey& key) noexcept {
    const std::size_t first = first_slot_of(key);
    Slot* empty = nullptr;
    kernel::TensorMap ignored{};
    for (std::size_t i = 0; i < neighbours; ++i) {
        Slot& slot = slots_[(first + i) % slot_count];
        if (read(slot, key, ignored)) {
            return slot;
        }
        if (empty == nullptr && slot.sequence.load(std::memory_order_relaxed) == 0) {
            empty = &slot;
        }
    }
    if (empty != nullptr) {
        return *empty;
    }
    const std::uint64_t turn = next_displaced_.fetch_add(1, std::memory_order_relaxed);
    return slots_[(first + turn % neighbours) % slot_count];
}

void TensorMapCache::insert(const CacheKey& key, const kernel::TensorMap& map) noexcept {
    Slot& slot = slot_for(key);
    std::uint64_t before = slot.sequence.load(std::memory_order_relaxed);
    if (before % 2 == 1 ||
        !slot.sequence.compare_exchange_strong(before, before + 1, std::memory_order_acquire)) {
        return;
    }
    std::atomic_thread_fence(std::memory_order_release);
    const auto key_values = words_of(key);
    for (std::size_t i = 0; i < key_words; ++i) {
        slot.key[i].store(key_values[i], std::memory_order_relaxed);
    }
    std::array<std::uint64_t, map_words> words{};
    std::memcpy(words.data(), map.opaque, sizeof(map.opaque));
    for (std::size_t i = 0; i < map_words; ++i) {
        slot.map[i].store(words[i], std::memory_order_relaxed);
    }
    slot.sequence.store(before + 2, std::memory_order_release);
}

}  // namespace backlight::tensor_map
