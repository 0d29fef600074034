#include <doctest/doctest.h>

#include <span>
#include <string>
#include <vector>

#include "backlight/cache/layered_cache.hpp"
#include "backlight/cache/pack.hpp"
#include "cache_test_support.hpp"

using backlight::cache::DiskCache;
using backlight::cache::encode_pack;
using backlight::cache::FieldDifference;
using backlight::cache::Key;
using backlight::cache::KeyLock;
using backlight::cache::LayeredCache;
using backlight::cache::LayeredCacheOptions;
using backlight::cache::PackedEntry;
using backlight::cache::write_pack;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

namespace {

/// A pack in memory with "embedded", a pack with "packed", a directory with "system", and a
/// writable directory with nothing yet; all but the last hold "everywhere" too.
class LayersFixture : public CacheFixture {
  public:
    LayersFixture() {
        std::string reason;
        memory_ = *encode_pack(entries_of("embedded"), reason);
        REQUIRE(write_pack(pack_path(), entries_of("packed"), reason));
        DiskCache system(system_path(), {});
        for (const PackedEntry& packed : entries_of("system")) {
            REQUIRE(system.store(packed.key, packed.entry));
        }
    }

    fs::path pack_path() const { return folder() / "kernels.pack"; }
    fs::path system_path() const { return folder() / "system"; }
    LayeredCacheOptions options() const {
        return {.read_only = {{.pack = std::as_bytes(std::span(memory_.data(), memory_.size()))},
                              {.path = pack_path()},
                              {.path = system_path()}},
                .writable = {.directory = directory()}};
    }

  private:
    static std::vector<PackedEntry> entries_of(const std::string& layer) {
        return {{some_key(layer), some_entry(layer)},
                {some_key("everywhere"), some_entry("everywhere, from " + layer)}};
    }

    std::string memory_;
};

}  // namespace

TEST_CASE("an entry is found in the first layer that has it and the layer is told") {
    LayersFixture fixture;
    LayeredCache cache(fixture.options(), fixture.sink());
    const std::vector<std::string> names = {"embedded", "packed", "system"};
    for (std::size_t i = 0; i < names.size(); ++i) {
        CAPTURE(names[i]);
        CHECK(cache.locate(some_key(names[i])) == i);
        const auto hit = cache.load(some_key(names[i]));
        REQUIRE(hit);
        CHECK(hit->layer == i);
        CHECK(hit->entry == some_entry(names[i]));
    }
    CHECK(cache.load(some_key("everywhere"))->entry == some_entry("everywhere, from embedded"));
    CHECK_FALSE(cache.load(some_key("new")));
    CHECK_FALSE(cache.locate(some_key("new")));
    REQUIRE(cache.store(some_key("new"), some_entry("new")));
    const auto hit = cache.load(some_key("new"));
    REQUIRE(hit);
    CHECK(hit->layer == 3);
    CHECK(cache.locate(some_key("new")) == 3U);
    CHECK(cache.writable()->load(some_key("new")));

    const auto counters = cache.counters();
    CHECK(counters.hits_by_layer == std::vector<std::uint64_t>{2, 1, 1, 2});
    CHECK(counters.misses == 1);
    CHECK(counters.writable.stores == 1);
    CHECK(counters.refused_layers == 0);
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a look after the wait for a lock is not a second miss") {
    LayersFixture fixture;
    LayeredCache cache(fixture.options(), {});
    CHECK_FALSE(cache.load(some_key("new")));
    const KeyLock lock = cache.lock(some_key("new"), 0ms);
    CHECK(lock.held());
    CHECK_FALSE(cache.load_again(some_key("new")));
    CHECK(cache.counters().misses == 1);
    REQUIRE(DiskCache(fixture.directory(), {}).store(some_key("new"), some_entry()));
    const auto hit = cache.load_again(some_key("new"));
    REQUIRE(hit);
    CHECK(hit->layer == 3);
}

TEST_CASE("a bad entry in a shipped layer is passed over and made good in the writable one") {
    LayersFixture fixture;
    const fs::path broken = DiskCache(fixture.system_path(), {}).path_of(some_key("system"));
    write_file(broken, "broken");
    LayeredCache cache(fixture.options(), fixture.sink());
    CHECK_FALSE(cache.load(some_key("system")));
    REQUIRE(cache.store(some_key("system"), some_entry("anew")));
    const auto hit = cache.load(some_key("system"));
    REQUIRE(hit);
    CHECK(hit->layer == 3);
    CHECK(hit->entry == some_entry("anew"));
    CHECK(fs::exists(broken));
    CHECK(fixture.warnings().size() == 1);
}

TEST_CASE("an entry that the driver refuses is not looked at again") {
    LayersFixture fixture;
    LayeredCache cache(fixture.options(), fixture.sink());
    for (const std::size_t layer : {0U, 1U, 2U}) {
        const auto hit = cache.load(some_key("everywhere"));
        REQUIRE(hit);
        CHECK(hit->layer == layer);
        cache.reject(some_key("everywhere"), hit->layer);
    }
    CHECK_FALSE(cache.load(some_key("everywhere")));
    CHECK_FALSE(cache.locate(some_key("everywhere")));
    REQUIRE(cache.store(some_key("everywhere"), some_entry("anew")));
    REQUIRE(cache.load(some_key("everywhere"))->entry == some_entry("anew"));
    // In the writable layer it goes from the disk, for the next process too.
    cache.reject(some_key("everywhere"), 3);
    CHECK_FALSE(cache.load(some_key("everywhere")));
    CHECK(cache.counters().writable.repairs == 1);
    CHECK(regular_files(fixture.directory()) == 0);
    // The others are still found.
    CHECK(cache.load(some_key("embedded")));
    // And a layer that is shared is not written: another process looks for itself.
    CHECK(LayeredCache(fixture.options(), {}).load(some_key("everywhere"))->layer == 0);
}

TEST_CASE("without a writable layer a store is no more than a miss that stays one") {
    LayersFixture fixture;
    LayeredCacheOptions options = fixture.options();
    options.writable.directory.clear();
    LayeredCache cache(options, fixture.sink());
    CHECK(cache.writable() == nullptr);
    CHECK(cache.load(some_key("packed")));
    CHECK_FALSE(cache.load(some_key("new")));
    CHECK(cache.lock(some_key("new"), 10s).state() == KeyLock::State::unavailable);
    CHECK_FALSE(cache.load_again(some_key("new")));
    CHECK_FALSE(cache.store(some_key("new"), some_entry()));
    cache.reject(some_key("packed"), 1);
    CHECK_FALSE(cache.load(some_key("packed")));
    CHECK(fixture.warnings().empty());

    LayeredCache none({}, fixture.sink());
    CHECK_FALSE(none.load(some_key()));
    CHECK_FALSE(none.store(some_key(), some_entry()));
    CHECK(none.nearest(some_key(), 3).empty());
}

TEST_CASE("layers that cannot be used are told once and counted and the rest goes on") {
    LayersFixture fixture;
    fs::permissions(fixture.system_path(), fs::perms::all);
    fs::resize_file(fixture.pack_path(), 10);
    LayeredCacheOptions options = fixture.options();
    // One that is not there is no problem: a system may have none.
    options.read_only.push_back({.path = fixture.folder() / "not there"});
    LayeredCache cache(options, fixture.sink());
    for (int repeat = 0; repeat < 2; ++repeat) {
        CHECK_FALSE(cache.load(some_key("system")));
        CHECK_FALSE(cache.load(some_key("packed")));
        CHECK(cache.load(some_key("embedded")));
    }
    CHECK(cache.store(some_key("system"), some_entry()));
    CHECK(cache.load(some_key("system")));
    CHECK(fixture.warnings().size() == 2);
    CHECK(cache.counters().refused_layers == 2);
    const auto states = cache.states();
    REQUIRE(states.size() == 5);
    CHECK(states[0].kind == "pack in memory");
    CHECK(states[0].location == "embedded");
    CHECK(states[1].kind == "pack");
    CHECK_FALSE(states[1].refusal.empty());
    CHECK(contains(states[2].refusal, "can be written by"));
    CHECK(states[3].refusal.empty());
    CHECK(states[4].writable);
    CHECK(states[4].location == fixture.directory());
}

TEST_CASE("the nearest entries are those that differ in the fewest fields") {
    CacheFixture fixture;
    LayeredCache cache({.writable = {.directory = fixture.directory()}}, fixture.sink());
    const auto key = [](const char* target, const char* options, const char* compiler) {
        return Key().add("target", target).add("options", options).add("compiler", compiler);
    };
    REQUIRE(cache.store(key("sm_120a", "-O2", "12.8"), some_entry()));
    REQUIRE(cache.store(key("sm_90a", "-O3", "12.8"), some_entry()));
    REQUIRE(cache.store(key("sm_90a", "-O3", "13.0"), some_entry("newer"), "made on a Monday"));
    make_older(cache.writable()->path_of(key("sm_90a", "-O3", "12.8")), 24h);

    const Key wanted = key("sm_90a", "-O3", "12.9");
    const auto near = cache.nearest(wanted, 10);
    REQUIRE(near.size() == 2);
    CHECK(near[0].differences == std::vector<FieldDifference>{{"compiler", "12.9", "13.0"}});
    CHECK(near[0].stored.key == key("sm_90a", "-O3", "13.0"));
    CHECK(near[0].stored.provenance == "made on a Monday");
    CHECK(near[0].layer == 0);
    CHECK(near[1].differences == std::vector<FieldDifference>{{"compiler", "12.9", "12.8"}});
    CHECK(cache.nearest(wanted, 1).size() == 1);
    CHECK(cache.nearest(wanted, 0).empty());
    // What may not be compared does not count, near as it is.
    const auto others = cache.nearest(wanted, 10, [&](const Key& stored) {
        return stored.text().find("sm_90a") == std::string::npos;
    });
    REQUIRE(others.size() == 1);
    CHECK(others[0].stored.key == key("sm_120a", "-O2", "12.8"));

    const auto same = cache.nearest(key("sm_120a", "-O2", "12.8"), 10);
    REQUIRE(same.size() == 1);
    CHECK(same[0].differences.empty());
}
