#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cache_test_support.hpp"

using backlight::cache::Check;
using backlight::cache::DiskCache;
using backlight::cache::Key;
using backlight::cache::KeyField;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

TEST_CASE(
    "a listing tells each entry's fields and metadata and sizes and last use and provenance") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    CHECK(cache.list(Check::heads).entries.empty());
    // A key longer than what is read at first.
    const Key large = Key().add("specialisation", std::string(50'000, 's'));
    REQUIRE(cache.store(some_key(), some_entry("12345"), "made by hand"));
    REQUIRE(cache.store(large, some_entry()));
    make_older(cache.path_of(some_key()), 3h);
    for (const Check check : {Check::heads, Check::everything}) {
        const auto listing = cache.list(check);
        CHECK(listing.bad.empty());
        CHECK(listing.problem.empty());
        REQUIRE(listing.entries.size() == 2);
        const bool first = listing.entries[0].key == some_key();
        const auto& entry = listing.entries[first ? 0 : 1];
        CHECK(listing.entries[first ? 1 : 0].key == large);
        CHECK(entry.key.fields() ==
              std::vector<KeyField>{{"schema", "1"}, {"kernel", "v3"}, {"target", "sm_90a"}});
        CHECK(entry.metadata == "registers 128");
        CHECK(entry.payload_bytes == 5);
        CHECK(entry.path == cache.path_of(some_key()));
        CHECK(entry.bytes == fs::file_size(entry.path));
        CHECK(entry.provenance == "made by hand");
        REQUIRE(entry.last_used);
        const auto age = std::chrono::system_clock::now() - *entry.last_used;
        CHECK(age >= 3h);
        CHECK(age < 4h);
    }
}

TEST_CASE("what an entry's maker said of it may be lost and is not taken for another's") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const auto told = [&] { return cache.list(Check::heads).entries.at(0).provenance; };
    REQUIRE(cache.store(some_key(), some_entry(), "first"));
    REQUIRE(cache.store(some_key(), some_entry(), "second"));
    CHECK(told() == "second");
    REQUIRE(cache.store(some_key(), some_entry()));
    CHECK(told().empty());
    REQUIRE(cache.store(some_key(), some_entry(), "third"));
    fs::remove(fs::path(cache.path_of(some_key())).replace_extension(".provenance"));
    CHECK(told().empty());
    CHECK(cache.load(some_key()) == some_entry());
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a check of all entries tells the bad ones and removes them if asked") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    for (const char* name : {"good", "payload", "head", "name", "open"}) {
        REQUIRE(cache.store(some_key(name), some_entry()));
    }
    const auto flip = [&](const char* name, std::ptrdiff_t from_end) {
        const fs::path path = cache.path_of(some_key(name));
        std::string bytes = read_file(path);
        bytes.end()[from_end] ^= 1;
        write_file(path, bytes);
    };
    flip("payload", -1);
    flip("head", -30);
    fs::rename(cache.path_of(some_key("name")),
               cache.path_of(some_key("good")).parent_path() / (std::string(30, 'b') + ".entry"));
    fs::permissions(cache.path_of(some_key("open")), fs::perms::all);

    // Without the payloads one is not seen.
    CHECK(cache.list(Check::heads).bad.size() == 3);
    const auto listing = cache.verify(false);
    CHECK(listing.bad.size() == 4);
    CHECK(listing.entries.size() == 1);
    for (const auto& bad : listing.bad) {
        CHECK_FALSE(bad.reason.empty());
        CHECK(fs::exists(bad.path));
    }
    CHECK(cache.verify(true).bad.size() == 4);
    CHECK(cache.counters().repairs == 4);
    CHECK(cache.verify(true).bad.empty());
    CHECK(regular_files(fixture.directory()) == 1);
    CHECK(cache.load(some_key("good")) == some_entry());
}
