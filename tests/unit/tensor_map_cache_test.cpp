#include "tensor_map/tensor_map_cache.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

using backlight::kernel::TensorMap;
using backlight::tensor_map::CacheKey;
using backlight::tensor_map::TensorMapCache;

namespace {

CacheKey key_number(std::uint64_t number) {
    return {.address = 0x10000000 + number * 4096,
            .stride_batch = static_cast<std::int64_t>(number * 8),
            .stride_head = 1024,
            .stride_seqlen = 128,
            .heads = static_cast<std::int64_t>(number % 3),
            .head_dim = static_cast<std::int64_t>(number % 5),
            .rows = static_cast<std::int64_t>(number % 2)};
}

/// A map in which every word tells the key and its own place: a torn value shows.
TensorMap map_of(std::uint64_t number) {
    TensorMap map{};
    for (std::uint64_t i = 0; i < 16; ++i) {
        const std::uint64_t word = number * 0x0001000100010001U + (i << 56U);
        std::memcpy(map.opaque + i * 8, &word, 8);
    }
    return map;
}

bool same(const TensorMap& a, const TensorMap& b) {
    return std::memcmp(a.opaque, b.opaque, sizeof(a.opaque)) == 0;
}

}  // namespace

TEST_CASE("a tensor map is found after it was put in the cache, and not before") {
    const auto cache = std::make_unique<TensorMapCache>();
    TensorMap found{};
    CHECK_FALSE(cache->find(key_number(1), found));
    // The key of all zeros is no exception: an empty slot does not hold it.
    CHECK_FALSE(cache->find({}, found));
    cache->insert(key_number(1), map_of(1));
    REQUIRE(cache->find(key_number(1), found));
    CHECK(same(found, map_of(1)));
    cache->insert(key_number(1), map_of(2));
    REQUIRE(cache->find(key_number(1), found));
    CHECK(same(found, map_of(2)));
}

TEST_CASE("a key that differs in any one part is not found") {
    const auto cache = std::make_unique<TensorMapCache>();
    const CacheKey key = key_number(1);
    cache->insert(key, map_of(1));
    TensorMap found{};
    for (std::int64_t CacheKey::*part :
         {&CacheKey::stride_batch, &CacheKey::stride_head, &CacheKey::stride_seqlen,
          &CacheKey::seqlen, &CacheKey::heads, &CacheKey::head_dim}) {
        CacheKey other = key;
        other.*part += 8;
        CHECK_FALSE(cache->find(other, found));
    }
    CacheKey other = key;
    other.address += 16;
    CHECK_FALSE(cache->find(other, found));
    other = key;
    other.rows = 0;
    REQUIRE(key.rows == 1);
    CHECK_FALSE(cache->find(other, found));
}

TEST_CASE("a full cache displaces: the newest map is always there, and none is ever wrong") {
    const auto cache = std::make_unique<TensorMapCache>();
    constexpr std::uint64_t keys = 1000;
    TensorMap found{};
    for (std::uint64_t number = 0; number < keys; ++number) {
        cache->insert(key_number(number), map_of(number));
        REQUIRE(cache->find(key_number(number), found));
        CHECK(same(found, map_of(number)));
    }
    std::size_t kept = 0;
    for (std::uint64_t number = 0; number < keys; ++number) {
        if (cache->find(key_number(number), found)) {
            ++kept;
            CHECK(same(found, map_of(number)));
        }
    }
    CHECK(kept > 128);  // The hash spreads keys over most of the 256 slots.
    CHECK(kept <= 256);
}

TEST_CASE("threads that read and displace the same slots never get a torn map") {
    const auto cache = std::make_unique<TensorMapCache>();
    std::atomic<std::uint64_t> wrong = 0;
    std::atomic<std::uint64_t> hits = 0;
    const auto work = [&](std::uint64_t seed) {
        std::uint64_t state = seed * 0x9e3779b97f4a7c15U + 1;
        TensorMap found{};
        for (int i = 0; i < 50000; ++i) {
            state ^= state << 13U;
            state ^= state >> 7U;
            state ^= state << 17U;
            const std::uint64_t number = state % 100;
            if (cache->find(key_number(number), found)) {
                ++hits;
                wrong += same(found, map_of(number)) ? 0 : 1;
            } else {
                cache->insert(key_number(number), map_of(number));
            }
        }
    };
    std::vector<std::thread> threads;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        threads.emplace_back(work, seed);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    CHECK(hits > 1000);
}

TEST_CASE("the four maps of a call are all there on its second run, whatever the pointers") {
    std::uint64_t state = 1;
    const auto next = [&] {
        state = state * 6364136223846793005U + 1442695040888963407U;
        return state >> 20U;
    };
    int missing = 0;
    for (int set = 0; set < 5000; ++set) {
        const auto cache = std::make_unique<TensorMapCache>();
        std::array<CacheKey, 4> keys;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            keys[i] = {.address = next() * 256,
                       .stride_batch = 1024,
                       .stride_head = 256,
                       .stride_seqlen = 128,
                       .rows = static_cast<std::int64_t>(i % 2)};
            cache->insert(keys[i], map_of(i));
        }
        TensorMap found{};
        for (std::size_t i = 0; i < keys.size(); ++i) {
            missing += cache->find(keys[i], found) && same(found, map_of(i)) ? 0 : 1;
        }
    }
    CHECK(missing == 0);
}

TEST_CASE("the maps of sixteen layers stay known together") {
    const auto cache = std::make_unique<TensorMapCache>();
    constexpr std::uint64_t maps = 64;
    for (std::uint64_t number = 0; number < maps; ++number) {
        cache->insert(key_number(number), map_of(number));
    }
    TensorMap found{};
    for (std::uint64_t number = 0; number < maps; ++number) {
        CAPTURE(number);
        CHECK(cache->find(key_number(number), found));
    }
}
