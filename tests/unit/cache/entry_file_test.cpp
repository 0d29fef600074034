#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "cache_test_support.hpp"

using backlight::cache::digest_of;
using backlight::cache::DiskCache;
using backlight::cache::Entry;
using backlight::cache::Key;
using namespace backlight::cache_test;

namespace {

/// Files that were written once and must be read for ever, or be refused by their version.
fs::path golden(const char* name) {
    return fs::path(BACKLIGHT_KERNEL_SOURCES_DIR).parent_path() / "tests" / "unit" / "cache" /
           "golden" / name;
}

Key golden_key() {
    return Key().add("target", "sm_90a").add("options", "--std=c++17\n-O3");
}

Entry golden_entry() {
    std::string payload;
    for (int i = 0; i < 256; ++i) {
        payload += static_cast<char>(i);
    }
    return {.metadata = R"({"registers":128})", .payload = bytes_of(payload)};
}

std::string to_bytes(const std::string& hexadecimal) {
    std::string bytes;
    for (std::size_t i = 0; i < hexadecimal.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

constexpr std::size_t header_bytes = 48;
constexpr std::size_t payload_digest_at = 32;

/// A file of this format from its parts, whatever they say, with checksums that are right.
std::string with_checksums(std::string head, const std::string& payload) {
    head.replace(payload_digest_at, 16, to_bytes(digest_of(payload)));
    return head + to_bytes(digest_of(head)) + payload;
}

}  // namespace

TEST_CASE("an entry with any one byte changed is removed as a miss, and a store repairs it") {
    CacheFixture fixture;
    DiskCache writer(fixture.directory(), fixture.sink());
    REQUIRE(writer.store(some_key(), some_entry()));
    const fs::path path = writer.path_of(some_key());
    const std::string whole = read_file(path);
    for (std::size_t i = 0; i < whole.size(); ++i) {
        CAPTURE(i);
        std::string broken = whole;
        broken[i] = static_cast<char>(broken[i] ^ 0x5a);
        write_file(path, broken);
        // A cache of its own for every byte, as the same problem is told once.
        DiskCache cache(fixture.directory(), fixture.sink());
        CHECK_FALSE(cache.load(some_key()));
        CHECK(fixture.warnings().size() == 1);
        CHECK_FALSE(fs::exists(path));
    }
    REQUIRE(writer.store(some_key(), some_entry()));
    CHECK(read_file(path) == whole);
    CHECK(writer.load(some_key()) == some_entry());
}

TEST_CASE("an entry cut short at any length, or grown, is removed as a miss") {
    CacheFixture fixture;
    DiskCache writer(fixture.directory(), fixture.sink());
    REQUIRE(writer.store(some_key(), some_entry()));
    const fs::path path = writer.path_of(some_key());
    const std::string whole = read_file(path);
    for (std::size_t size = 0; size <= whole.size() + 1; ++size) {
        if (size == whole.size()) {
            continue;
        }
        CAPTURE(size);
        write_file(path, (whole + '\0').substr(0, size));
        DiskCache cache(fixture.directory(), fixture.sink());
        CHECK_FALSE(cache.load(some_key()));
        CHECK(fixture.warnings().size() == 1);
        CHECK_FALSE(fs::exists(path));
    }
}

TEST_CASE(
    "an entry whose lengths do not fit its size is a miss even where its checksums are right") {
    CacheFixture fixture;
    DiskCache writer(fixture.directory(), fixture.sink());
    REQUIRE(writer.store(some_key(), some_entry()));
    const fs::path path = writer.path_of(some_key());
    const std::string whole = read_file(path);
    const std::string payload = "cubin";
    const std::string head = whole.substr(0, whole.size() - payload.size() - 16);
    REQUIRE(head.size() > header_bytes);
    REQUIRE(whole == with_checksums(head, payload));
    std::vector<std::string> broken = {with_checksums(head, payload + 'x'),
                                       with_checksums(head, payload.substr(1)),
                                       with_checksums(head + 'x', payload)};
    for (const std::size_t length_at : {8U, 16U, 24U}) {
        std::string changed = head;
        broken.push_back(with_checksums(changed.replace(length_at, 8, 8, '\xff'), payload));
        // Two lengths whose sum wraps around to the right one.
        changed = head;
        changed[length_at + 7] = '\x80';
        changed[length_at == 8 ? 23 : 15] = '\x80';
        broken.push_back(with_checksums(changed, payload));
    }
    for (const std::string& bytes : broken) {
        write_file(path, bytes);
        DiskCache cache(fixture.directory(), fixture.sink());
        CHECK_FALSE(cache.load(some_key()));
        const auto warnings = fixture.warnings();
        REQUIRE(warnings.size() == 1);
        CHECK(contains(warnings[0], "lengths"));
    }
}

TEST_CASE("an entry written long ago is read as it was meant") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const fs::path path = cache.path_of(golden_key());
    fs::create_directories(path.parent_path());
    fs::copy_file(golden("version_2.entry"), path);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    CHECK(cache.load(golden_key()) == golden_entry());
    CHECK(fixture.warnings().empty());
}

TEST_CASE("an entry is written byte for byte as it always was") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(golden_key(), golden_entry()));
    // A change here needs another format version and another golden file.
    CHECK(read_file(cache.path_of(golden_key())) == read_file(golden("version_2.entry")));
}

TEST_CASE("an entry of the format before is a miss and is replaced") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const fs::path path = cache.path_of(golden_key());
    fs::create_directories(path.parent_path());
    fs::copy_file(golden("version_1.entry"), path);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    CHECK_FALSE(cache.load(golden_key()));
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "version"));
    CHECK(cache.store(golden_key(), golden_entry()));
    CHECK(cache.load(golden_key()) == golden_entry());
}

TEST_CASE("the same entry is the same bytes whoever stored it and whatever its provenance") {
    CacheFixture fixture;
    DiskCache one(fixture.folder() / "one", fixture.sink());
    DiskCache other(fixture.folder() / "other", fixture.sink());
    REQUIRE(one.store(some_key(), some_entry(), "compiled in 512 ms"));
    REQUIRE(other.store(some_key(), some_entry(), "compiled in 498 ms, on a Tuesday"));
    CHECK(read_file(one.path_of(some_key())) == read_file(other.path_of(some_key())));
}
