#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "arguments/attention_backward.h"

namespace backlight::tensor_map {

/// What distinguishes the tensor maps of one plan: everything else (batch, type, columns of a box)
/// is the plan's.
struct CacheKey {
    std::uint64_t address = 0;
    std::int64_t stride_batch = 0;
    std::int64_t stride_head = 0;
    std::int64_t stride_seqlen = 0;
    std::int64_t seqlen = 0;
    std::int64_t heads = 0;
    std::int64_t head_dim = 0;
    /// Rows of a box.
    std::int64_t rows = 0;

    bool operator==(const CacheKey&) const = default;
};

/// Remembers encoded tensor maps, so that a repeated call encodes nothing. Fixed in size: a map
/// lies in one of a few neighbouring slots, and where these are taken a new one displaces one of
/// them in turn. Never locks, never allocates: each slot is a sequence lock, a reader that meets a
/// writer has a miss, and a writer that meets another leaves it the slot.
class TensorMapCache {
  public:
    bool find(const CacheKey& key, kernel::TensorMap& map) const noexcept;
    void insert(const CacheKey& key, const kernel::TensorMap& map) noexcept;

  private:
    static constexpr std::size_t slot_count = 256;
    static constexpr std::size_t neighbours = 8;
    static constexpr std::size_t key_words = 8;
    static constexpr std::size_t map_words = sizeof(kernel::TensorMap) / sizeof(std::uint64_t);

    // The words are atomic so that a read that races a write is defined; its result is discarded.
    struct Slot {
        std::atomic<std::uint64_t> sequence = 0;  // odd while being written; 0: never written
        std::array<std::atomic<std::uint64_t>, key_words> key{};
        std::array<std::atomic<std::uint64_t>, map_words> map{};
    };

    static std::array<std::uint64_t, key_words> words_of(const CacheKey& key) noexcept;
    static std::size_t first_slot_of(const CacheKey& key) noexcept;
    Slot& slot_for(const CacheKey& key) noexcept;
    static bool read(const Slot& slot, const CacheKey& key, kernel::TensorMap& map) noexcept;

    std::array<Slot, slot_count> slots_;
    std::atomic<std::uint64_t> next_displaced_ = 0;
};

}  // namespace backlight::tensor_map
