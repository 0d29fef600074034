#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "backlight/cache/pack.hpp"
#include "cache_test_support.hpp"

using backlight::cache::Check;
using backlight::cache::DiskCache;
using backlight::cache::encode_pack;
using backlight::cache::Pack;
using backlight::cache::PackedEntry;
using backlight::cache::write_pack;
using namespace backlight::cache_test;

namespace {

std::vector<PackedEntry> some_entries(int count) {
    std::vector<PackedEntry> entries;
    for (int i = 0; i < count; ++i) {
        entries.push_back({some_key(std::to_string(i)),
                           some_entry("cubin " + std::string(static_cast<std::size_t>(i), 'x'))});
    }
    return entries;
}

std::string packed(std::span<const PackedEntry> entries) {
    std::string reason;
    const auto pack = encode_pack(entries, reason);
    REQUIRE_MESSAGE(pack, reason);
    return *pack;
}

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST_CASE("a pack holds every entry by path and in memory") {
    CacheFixture fixture;
    const auto entries = some_entries(50);
    const fs::path path = fixture.folder() / "kernels.pack";
    std::string reason;
    REQUIRE(write_pack(path, entries, reason));
    const std::string bytes = read_file(path);
    Pack by_path(path, fixture.sink());
    Pack in_memory(as_bytes(bytes), "embedded", fixture.sink());
    for (Pack* pack : {&by_path, &in_memory}) {
        CHECK(pack->size() == entries.size());
        for (const PackedEntry& packed_entry : entries) {
            CHECK(pack->load(packed_entry.key) == packed_entry.entry);
            CHECK(pack->holds(packed_entry.key));
        }
        CHECK(pack->hits() == entries.size());
        CHECK_FALSE(pack->load(some_key("another")));
        CHECK_FALSE(pack->holds(some_key("another")));
        CHECK(pack->refusal().empty());
        const auto listing = pack->list(Check::everything);
        CHECK(listing.entries.size() == entries.size());
        CHECK(listing.bad.empty());
        CHECK(listing.problem.empty());
    }
    CHECK(std::string(by_path.kind()) == "pack");
    CHECK(std::string(in_memory.kind()) == "pack in memory");
    CHECK(permissions(path) == 0644);
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a pack in memory may lie at any address") {
    const auto entries = some_entries(3);
    const std::string pack = packed(entries);
    for (std::size_t offset = 0; offset < 16; ++offset) {
        const std::string moved = std::string(offset, '-') + pack;
        Pack in_memory(as_bytes(moved).subspan(offset), "embedded", {});
        for (const PackedEntry& packed_entry : entries) {
            CHECK(in_memory.load(packed_entry.key) == packed_entry.entry);
        }
    }
}

TEST_CASE("a pack is the same bytes whatever the order of its entries") {
    auto entries = some_entries(20);
    const std::string pack = packed(entries);
    std::reverse(entries.begin(), entries.end());
    CHECK(packed(entries) == pack);
    // An entry that is there twice is there once.
    entries.push_back(entries.front());
    CHECK(packed(entries) == pack);
}

TEST_CASE("a pack is not made of two different entries of one key") {
    CacheFixture fixture;
    const std::vector<PackedEntry> entries = {{some_key(), some_entry("one")},
                                              {some_key(), some_entry("other")}};
    std::string reason;
    CHECK_FALSE(encode_pack(entries, reason));
    CHECK(contains(reason, some_key().text()));
    CHECK_FALSE(write_pack(fixture.folder() / "pack", entries, reason));
    CHECK(fs::is_empty(fixture.folder()));
}

TEST_CASE("a pack that cannot be written says why and leaves the old one") {
    CacheFixture fixture;
    const fs::path path = fixture.folder() / "pack";
    std::string reason;
    REQUIRE(write_pack(path, some_entries(1), reason));
    const std::string before = read_file(path);
    bool written = true;
    {
        const FileSizeLimit limit(1024);
        written = write_pack(path, some_entries(40), reason);
    }
    CHECK_FALSE(written);
    CHECK_FALSE(reason.empty());
    CHECK(read_file(path) == before);
    CHECK(regular_files(fixture.folder()) == 1);
    CHECK_FALSE(write_pack(fixture.folder() / "missing" / "pack", some_entries(1), reason));
}

TEST_CASE("an empty pack is a pack") {
    const std::string bytes = packed({});
    CacheFixture fixture;
    Pack pack(as_bytes(bytes), "empty", fixture.sink());
    CHECK(pack.size() == 0);
    CHECK_FALSE(pack.load(some_key()));
    CHECK(pack.refusal().empty());
    CHECK(fixture.warnings().empty());
}

TEST_CASE("an entry within a pack is its file byte for byte") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    REQUIRE(cache.store(some_key(), some_entry(), "provenance stays outside"));
    const std::vector<PackedEntry> entries = {{some_key(), some_entry()}};
    const std::string file = read_file(cache.path_of(some_key()));
    const std::string pack = packed(entries);
    CHECK(pack.substr(pack.size() - file.size()) == file);
}

TEST_CASE("a pack with any one byte changed never gives a wrong entry and tells it once") {
    const auto entries = some_entries(3);
    const std::string whole = packed(entries);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        CAPTURE(i);
        CacheFixture fixture;
        std::string broken = whole;
        broken[i] = static_cast<char>(broken[i] ^ 0x5a);
        Pack pack(as_bytes(broken), "broken", fixture.sink());
        std::size_t missed = 0;
        for (int repeat = 0; repeat < 2; ++repeat) {
            for (const PackedEntry& packed_entry : entries) {
                const auto loaded = pack.load(packed_entry.key);
                missed += loaded ? 0 : 1;
                CHECK((!loaded || *loaded == packed_entry.entry));
            }
        }
        // One entry twice, or the whole pack twice.
        CHECK((missed == 2 || missed == 2 * entries.size()));
        CHECK(fixture.warnings().size() == 1);
        const auto listing = pack.list(Check::everything);
        CHECK((listing.bad.size() == 1 || !listing.problem.empty()));
    }
}

TEST_CASE("a pack cut short at any length or grown holds nothing") {
    const auto entries = some_entries(3);
    const std::string whole = packed(entries);
    CacheFixture fixture;
    const fs::path path = fixture.folder() / "pack";
    for (std::size_t size = 0; size <= whole.size() + 1; ++size) {
        if (size == whole.size()) {
            continue;
        }
        CAPTURE(size);
        const std::string cut = (whole + '\0').substr(0, size);
        Pack in_memory(as_bytes(cut), "cut", fixture.sink());
        write_file(path, cut);
        Pack by_path(path, fixture.sink());
        for (Pack* pack : {&in_memory, &by_path}) {
            CHECK(pack->size() == 0);
            CHECK_FALSE(pack->refusal().empty());
            CHECK_FALSE(pack->load(entries[0].key));
        }
        CHECK(fixture.warnings().size() == 2);
    }
}

TEST_CASE("a pack that is cut while it is open is a miss") {
    CacheFixture fixture;
    const auto entries = some_entries(3);
    const fs::path path = fixture.folder() / "pack";
    std::string reason;
    REQUIRE(write_pack(path, entries, reason));
    Pack pack(path, fixture.sink());
    fs::resize_file(path, fs::file_size(path) / 2);
    std::size_t missed = 0;
    for (const PackedEntry& packed_entry : entries) {
        const auto loaded = pack.load(packed_entry.key);
        missed += loaded ? 0 : 1;
        CHECK((!loaded || *loaded == packed_entry.entry));
    }
    CHECK(missed >= 1);
    CHECK(fixture.warnings().size() == missed);
}

TEST_CASE("a pack that others can write is refused") {
    CacheFixture fixture;
    const fs::path path = fixture.folder() / "pack";
    std::string reason;
    REQUIRE(write_pack(path, some_entries(1), reason));
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    Pack pack(path, fixture.sink());
    CHECK(pack.size() == 0);
    CHECK(contains(pack.refusal(), "can be written by"));
    CHECK(fixture.warnings().size() == 1);
}

TEST_CASE("a pack that is not there is told once and holds nothing") {
    CacheFixture fixture;
    Pack pack(fixture.folder() / "pack", fixture.sink());
    CHECK_FALSE(pack.load(some_key()));
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "No such file"));
}

TEST_CASE("a pack written long ago is read as it was meant and is written so still") {
    CacheFixture fixture;
    const std::string golden = read_file(fs::path(BACKLIGHT_KERNEL_SOURCES_DIR).parent_path() /
                                         "tests" / "unit" / "cache" / "golden" / "version_1.pack");
    const auto entries = some_entries(2);
    Pack pack(as_bytes(golden), "golden", fixture.sink());
    CHECK(pack.size() == 2);
    for (const PackedEntry& packed_entry : entries) {
        CHECK(pack.load(packed_entry.key) == packed_entry.entry);
    }
    // A change here needs another format version and another golden file.
    CHECK(packed(entries) == golden);
}
