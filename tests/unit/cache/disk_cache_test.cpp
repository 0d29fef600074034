#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "cache_test_support.hpp"

using backlight::cache::default_directory;
using backlight::cache::DiskCache;
using backlight::cache::Entry;
using backlight::cache::Key;
using namespace backlight::cache_test;

TEST_CASE("making a cache touches nothing, and a missing entry is a silent miss") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    CHECK(cache.directory() == fixture.directory());
    CHECK_FALSE(cache.load(some_key()));
    CHECK(fs::is_empty(fixture.folder()));
    CHECK(fixture.warnings().empty());
}

TEST_CASE("what was stored is loaded, by another cache of that directory too") {
    CacheFixture fixture;
    const std::vector<Entry> entries = {
        some_entry(),
        {},
        {.metadata = std::string("nul\0inside", 10), .payload = bytes_of(std::string(300, '\xff'))},
        {.metadata = {}, .payload = std::vector<std::byte>((std::size_t{1} << 20) + 1)},
    };
    DiskCache writer(fixture.directory(), fixture.sink());
    DiskCache reader(fixture.directory(), fixture.sink());
    for (std::size_t i = 0; i < entries.size(); ++i) {
        CAPTURE(i);
        const Key key = some_key(std::to_string(i));
        REQUIRE(writer.store(key, entries[i]));
        CHECK(writer.load(key) == entries[i]);
        CHECK(reader.load(key) == entries[i]);
    }
    CHECK_FALSE(reader.load(some_key("another")));
    CHECK(regular_files(fixture.directory()) == entries.size());
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a later store of a key replaces the entry") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry("first, and longer")));
    REQUIRE(cache.store(some_key(), some_entry("second")));
    CHECK(cache.load(some_key()) == some_entry("second"));
    CHECK(regular_files(fixture.directory()) == 1);
}

TEST_CASE("entries and their directories are for their owner alone") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    const fs::path path = cache.path_of(some_key());
    CHECK(permissions(fixture.directory().parent_path()) == 0700);
    CHECK(permissions(fixture.directory()) == 0700);
    CHECK(permissions(path.parent_path()) == 0700);
    CHECK(permissions(path) == 0600);
}

TEST_CASE("an entry lies in a folder named by the first two digits of its digest") {
    const DiskCache cache("/cache", {});
    const std::string digest = some_key().digest();
    CHECK(cache.path_of(some_key()) ==
          fs::path("/cache") / digest.substr(0, 2) / (digest.substr(2) + ".entry"));
}

TEST_CASE("a whole entry of another key under this key's name is a miss") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key("v2"), some_entry()));
    const fs::path path = cache.path_of(some_key("v3"));
    fs::create_directories(path.parent_path());
    fs::copy_file(cache.path_of(some_key("v2")), path);
    CHECK_FALSE(cache.load(some_key("v3")));
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "another key"));
    CHECK(contains(warnings[0], path.string()));
    CHECK_FALSE(fs::exists(path));
    CHECK(cache.load(some_key("v2")) == some_entry());
}

TEST_CASE("the same problem with the same entry is told once, another problem again") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    for (const Key& key : {some_key("v2"), some_key("v3")}) {
        REQUIRE(cache.store(key, some_entry()));
        const fs::path path = cache.path_of(key);
        const std::string whole = read_file(path);
        std::string changed = whole;
        changed.back() = static_cast<char>(changed.back() ^ 1);
        for (const std::string& broken : {changed, std::string("short")}) {
            for (int repeat = 0; repeat < 3; ++repeat) {
                write_file(path, broken);
                CHECK_FALSE(cache.load(key));
            }
            CHECK(fixture.warnings().size() == 1);
        }
    }
}

TEST_CASE("an unusable directory is told once, and never throws") {
    CacheFixture fixture;
    write_file(fixture.folder() / "file", "");
    DiskCache cache(fixture.folder() / "file" / "cache", fixture.sink());
    for (const Key& key : {some_key("v2"), some_key("v3")}) {
        CHECK_FALSE(cache.load(key));
        CHECK_FALSE(cache.store(key, some_entry()));
    }
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], cache.directory().string()));
    CHECK(contains(warnings[0], "Not a directory"));
}

TEST_CASE("a store that runs out of room is told, and leaves nothing behind") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry("small")));
    bool stored = true;
    {
        const FileSizeLimit limit(4096);
        stored = cache.store(some_key(), some_entry(std::string(10000, 'x')));
    }
    CHECK_FALSE(stored);
    CHECK(fixture.warnings().size() == 1);
    CHECK(regular_files(fixture.directory()) == 1);
    CHECK(cache.load(some_key()) == some_entry("small"));
}

TEST_CASE("a store that cannot take its place is told, and leaves nothing behind") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    fs::create_directories(cache.path_of(some_key()));
    CHECK_FALSE(cache.load(some_key()));
    CHECK(fixture.warnings().size() == 1);
    CHECK_FALSE(cache.store(some_key(), some_entry()));
    CHECK(fixture.warnings().size() == 1);
    CHECK(regular_files(fixture.directory()) == 0);
}

TEST_CASE("a process killed within a store leaves no part of an entry, and hinders no other") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        // The signal for a file too large ends the process between two parts of the entry.
        std::signal(SIGXFSZ, SIG_DFL);
        const rlimit none{.rlim_cur = 0, .rlim_max = 0};
        ::setrlimit(RLIMIT_CORE, &none);
        const rlimit limit{.rlim_cur = 16, .rlim_max = 16};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        cache.store(some_key(), some_entry());
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(regular_files(fixture.directory()) == 1);
    CHECK_FALSE(fs::exists(cache.path_of(some_key())));
    CHECK_FALSE(cache.load(some_key()));
    CHECK(cache.store(some_key(), some_entry()));
    CHECK(cache.load(some_key()) == some_entry());
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a pipe in an entry's place is a miss, not a wait for a writer") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const fs::path path = cache.path_of(some_key());
    fs::create_directories(path.parent_path());
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    CHECK_FALSE(cache.load(some_key()));
    CHECK(fixture.warnings().size() == 1);
    CHECK(cache.store(some_key(), some_entry()));
    CHECK(cache.load(some_key()) == some_entry());
}

TEST_CASE("a sink that throws anything, or none at all, leaves a miss a miss") {
    CacheFixture fixture;
    const std::vector<DiskCache::WarningSink> sinks = {
        {},
        [](std::string_view) { throw std::runtime_error("sink"); },
        [](std::string_view) { throw 1; }};
    write_file(fixture.folder() / "file", "");
    for (const DiskCache::WarningSink& sink : sinks) {
        DiskCache cache(fixture.folder() / "file" / "cache", sink);
        CHECK_FALSE(cache.store(some_key(), some_entry()));
        CHECK_FALSE(cache.load(some_key()));
    }
}

TEST_CASE("stores of one key from many threads leave one whole entry, and loads see no part") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    constexpr int writers = 8;
    constexpr int stores = 20;
    // Sizes differ, so that a mixture of two entries cannot be whole.
    const auto payload_of = [](int writer) {
        return std::string(static_cast<std::size_t>(1000 + 997 * writer),
                           static_cast<char>('a' + writer));
    };
    const auto is_whole = [&](const Entry& entry) {
        for (int writer = 0; writer < writers; ++writer) {
            if (entry == some_entry(payload_of(writer))) {
                return true;
            }
        }
        return false;
    };
    std::barrier start(writers);
    std::mutex mutex;
    int failed_stores = 0;
    int broken_loads = 0;
    std::vector<std::thread> threads;
    for (int writer = 0; writer < writers; ++writer) {
        threads.emplace_back([&, writer] {
            start.arrive_and_wait();
            for (int i = 0; i < stores; ++i) {
                const bool stored = cache.store(some_key(), some_entry(payload_of(writer)));
                const auto loaded = cache.load(some_key());
                const std::lock_guard lock(mutex);
                failed_stores += stored ? 0 : 1;
                broken_loads += loaded && is_whole(*loaded) ? 0 : 1;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(failed_stores == 0);
    CHECK(broken_loads == 0);
    CHECK(fixture.warnings().empty());
    const auto last = cache.load(some_key());
    REQUIRE(last);
    CHECK(is_whole(*last));
    CHECK(regular_files(fixture.directory()) == 1);
}

TEST_CASE("a directory that was moved hits at its new place") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    const fs::path moved = fixture.folder() / "moved";
    fs::rename(fixture.directory(), moved);
    CHECK(DiskCache(moved, fixture.sink()).load(some_key()) == some_entry());
    CHECK_FALSE(cache.load(some_key()));
    CHECK(fixture.warnings().empty());
}

TEST_CASE("the default directory is the first of what is set and usable") {
    CHECK(default_directory("/own", "/xdg", "/home/a") == "/own");
    CHECK(default_directory("relative", "/xdg", "/home/a") == "relative");
    CHECK(default_directory(nullptr, "/xdg", "/home/a") == "/xdg/backlight");
    CHECK(default_directory("", "/xdg", "/home/a") == "/xdg/backlight");
    CHECK(default_directory(nullptr, nullptr, "/home/a") == "/home/a/.cache/backlight");
    CHECK(default_directory(nullptr, "", "/home/a") == "/home/a/.cache/backlight");
    // The XDG specification has relative paths ignored.
    CHECK(default_directory(nullptr, "xdg", "/home/a") == "/home/a/.cache/backlight");
    CHECK(default_directory(nullptr, nullptr, "home").empty());
    CHECK(default_directory(nullptr, nullptr, "").empty());
    CHECK(default_directory(nullptr, nullptr, nullptr).empty());
}
