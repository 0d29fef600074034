#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "cache_test_support.hpp"

using backlight::cache::DiskCache;
using backlight::cache::KeyLock;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

namespace {

std::uint64_t bytes_in(const fs::path& directory) {
    std::uint64_t bytes = 0;
    for (const auto& item : fs::recursive_directory_iterator(directory)) {
        bytes += item.is_regular_file() ? item.file_size() : 0;
    }
    return bytes;
}

std::chrono::seconds age_of(const fs::path& path) {
    return std::chrono::duration_cast<std::chrono::seconds>(fs::file_time_type::clock::now() -
                                                            fs::last_write_time(path));
}

void store_some(DiskCache& cache, int count, std::size_t payload_bytes) {
    for (int i = 0; i < count; ++i) {
        REQUIRE(
            cache.store(some_key(std::to_string(i)), some_entry(std::string(payload_bytes, 'x'))));
    }
}

}  // namespace

TEST_CASE("a cache keeps to its limit and to a little more between two looks") {
    CacheFixture fixture(memory_directory());
    constexpr std::uint64_t limit = 100'000;
    constexpr std::size_t payload = 2000;
    DiskCache cache({.directory = fixture.directory(), .byte_limit = limit}, fixture.sink());
    std::uint64_t most = 0;
    for (int i = 0; i < 200; ++i) {
        REQUIRE(cache.store(some_key(std::to_string(i)), some_entry(std::string(payload, 'x'))));
        most = std::max(most, bytes_in(fixture.directory()));
    }
    CHECK(most > limit / 2);
    CHECK(most <= limit + limit / 8);
    CHECK(cache.counters().evictions >= 150);
    CHECK(cache.load(some_key("199")));
    CHECK_FALSE(cache.load(some_key("0")));
    CHECK(fixture.warnings().empty());
}

TEST_CASE("what a writer that was killed has left takes its room from the limit at once") {
    CacheFixture fixture(memory_directory());
    constexpr std::uint64_t limit = 100'000;
    DiskCache cache({.directory = fixture.directory(), .byte_limit = limit}, fixture.sink());
    store_some(cache, 20, 2000);
    write_file(cache.path_of(some_key("0")).native() + ".temporary.AbC123",
               std::string(80'000, 'x'));
    store_some(cache, 40, 2000);
    CHECK(bytes_in(fixture.directory()) <= limit + limit / 8);
    CHECK(cache.counters().evictions > 0);
    CHECK(cache.load(some_key("39")));
}

TEST_CASE("the limit holds though each process stores one entry only") {
    CacheFixture fixture(memory_directory());
    constexpr std::uint64_t limit = 50'000;
    for (int i = 0; i < 60; ++i) {
        DiskCache cache({.directory = fixture.directory(), .byte_limit = limit}, {});
        REQUIRE(cache.store(some_key(std::to_string(i)), some_entry(std::string(2000, 'x'))));
    }
    CHECK(bytes_in(fixture.directory()) <= limit + 3000);
}

TEST_CASE("what was used last is evicted last") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    store_some(cache, 10, 1000);
    for (int i = 0; i < 10; ++i) {
        make_older(cache.path_of(some_key(std::to_string(i))), std::chrono::hours(100 - i));
    }
    // The oldest of all, but used now.
    CHECK(cache.load(some_key("0")));
    const auto report = cache.prune({.to_bytes = bytes_in(fixture.directory()) / 2});
    CHECK(report.entries == 5);
    CHECK(report.problem.empty());
    CHECK(cache.load(some_key("0")));
    for (int i = 1; i < 10; ++i) {
        CAPTURE(i);
        CHECK(cache.load(some_key(std::to_string(i))).has_value() == (i > 5));
    }
}

TEST_CASE("a hit stamps an entry whose stamp is old and leaves a fresh one alone") {
    CacheFixture fixture;
    DiskCache cache({.directory = fixture.directory(), .stamp_interval = 10min}, {});
    REQUIRE(cache.store(some_key(), some_entry()));
    const fs::path path = cache.path_of(some_key());
    make_older(path, 5min);
    CHECK(cache.load(some_key()));
    CHECK(age_of(path) >= 5min);
    make_older(path, 20min);
    CHECK(cache.load(some_key()));
    CHECK(age_of(path) < 1min);
    // Of a clock that was ahead.
    make_older(path, -20min);
    CHECK(cache.load(some_key()));
    CHECK(age_of(path) >= -1min);
}

TEST_CASE("a hit in a read-only layer writes nothing") {
    CacheFixture fixture;
    DiskCache maker(fixture.directory(), {});
    REQUIRE(maker.store(some_key(), some_entry()));
    REQUIRE(maker.store(some_key("v2"), some_entry()));
    const fs::path path = maker.path_of(some_key());
    const fs::path broken = maker.path_of(some_key("v2"));
    make_older(path, 50h);
    write_file(broken, "broken");
    DiskCache cache({.directory = fixture.directory(), .read_only = true}, fixture.sink());
    CHECK(cache.load(some_key()));
    CHECK(age_of(path) >= 50h);
    CHECK_FALSE(cache.store(some_key("new"), some_entry()));
    CHECK_FALSE(cache.load(some_key("v2")));
    CHECK(fs::exists(broken));
    cache.reject(some_key());
    CHECK(cache.load(some_key()));
    CHECK_FALSE(cache.prune({.to_bytes = 0}).problem.empty());
    CHECK(cache.verify(true).bad.size() == 1);
    CHECK(regular_files(fixture.directory()) == 2);
    CHECK(fixture.warnings().size() == 1);
}

TEST_CASE("the time of an entry is no part of its freshness") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    REQUIRE(cache.store(some_key(), some_entry()));
    make_older(cache.path_of(some_key()), 24h * 365 * 20);
    CHECK(cache.load(some_key()) == some_entry());
}

TEST_CASE("an entry that is evicted while it is read is read to its end") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    REQUIRE(cache.store(some_key(), some_entry(std::string(100'000, 'x'))));
    const fs::path path = cache.path_of(some_key());
    const std::string whole = read_file(path);
    const int reader = ::open(path.c_str(), O_RDONLY);
    REQUIRE(reader >= 0);
    REQUIRE(cache.prune({.to_bytes = 0}).entries == 1);
    CHECK_FALSE(fs::exists(path));
    std::string bytes(whole.size(), '\0');
    CHECK(::read(reader, bytes.data(), bytes.size()) == static_cast<ssize_t>(whole.size()));
    ::close(reader);
    CHECK(bytes == whole);
}

TEST_CASE("loads among evictions are the entry or a miss and never a warning") {
    CacheFixture fixture(memory_directory());
    std::atomic<bool> done = false;
    std::atomic<int> wrong = 0;
    std::atomic<int> found = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            DiskCache reader(fixture.directory(), fixture.sink());
            while (!done) {
                if (const auto entry = reader.load(some_key())) {
                    wrong += entry == some_entry() ? 0 : 1;
                    ++found;
                }
            }
        });
    }
    DiskCache writer(fixture.directory(), fixture.sink());
    for (int i = 0; i < 50 || found == 0; ++i) {
        writer.store(some_key(), some_entry());
        writer.prune({.to_bytes = 0});
    }
    done = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    CHECK(fixture.warnings().empty());
}

TEST_CASE("leftovers of dead processes are swept when they are old and what is not ours stays") {
    CacheFixture fixture;
    DiskCache cache({.directory = fixture.directory(), .leftover_age = 1h}, fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry(), "kept"));
    const fs::path path = cache.path_of(some_key());
    const fs::path shard = path.parent_path();
    const std::string stem = std::string(30, 'a');
    const std::vector<fs::path> leftovers = {
        path.native() + ".temporary.AbC123", shard / (stem + ".provenance.temporary.AbC123"),
        shard / (stem + ".lock"), shard / (stem + ".provenance")};
    const std::vector<fs::path> foreign = {shard / "notes.txt", shard / "aa.lock",
                                           fixture.directory() / (stem + ".lock"),
                                           shard / (stem + ".temporary.AbC123")};
    for (const auto& files : {leftovers, foreign}) {
        for (const fs::path& file : files) {
            write_file(file, "");
        }
    }
    CHECK(cache.prune({}).leftovers == 0);
    for (const auto& files : {leftovers, foreign, std::vector{path}}) {
        for (const fs::path& file : files) {
            make_older(file, 2h);
        }
    }
    make_older(fs::path(path).replace_extension(".provenance"), 2h);
    const auto report = cache.prune({});
    CHECK(report.leftovers == leftovers.size());
    CHECK(report.entries == 0);
    CHECK(cache.counters().swept == leftovers.size());
    for (const fs::path& file : leftovers) {
        CHECK_FALSE(fs::exists(file));
    }
    for (const fs::path& file : foreign) {
        CHECK(fs::exists(file));
    }
    CHECK(cache.load(some_key()) == some_entry());
    CHECK(fs::exists(fs::path(path).replace_extension(".provenance")));
}

TEST_CASE("a store sweeps its own shard without being asked") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    const fs::path leftover = cache.path_of(some_key()).native() + ".temporary.AbC123";
    fs::create_directories(leftover.parent_path());
    write_file(leftover, "part of an entry");
    make_older(leftover, 2h);
    // Left there when the clock was ahead.
    const fs::path early = cache.path_of(some_key()).native() + ".temporary.dEf456";
    write_file(early, "part of another");
    make_older(early, -24h);
    REQUIRE(cache.store(some_key(), some_entry()));
    CHECK_FALSE(fs::exists(leftover));
    CHECK_FALSE(fs::exists(early));
    CHECK(cache.counters().swept == 2);
}

TEST_CASE("a lock that is held is not swept however old it is") {
    CacheFixture fixture;
    DiskCache cache({.directory = fixture.directory(), .leftover_age = 0s}, {});
    const KeyLock lock = cache.lock(some_key(), 0ms);
    REQUIRE(lock.held());
    CHECK(cache.prune({}).leftovers == 0);
    CHECK(cache.lock(some_key(), 0ms).state() == KeyLock::State::timed_out);
}

TEST_CASE("entries are pruned by age or to a size or all") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    store_some(cache, 6, 1000);
    REQUIRE(cache.store(some_key("0"), some_entry(std::string(1000, 'x')), "made by hand"));
    make_older(cache.path_of(some_key("0")), 48h);
    make_older(cache.path_of(some_key("1")), 24h);
    CHECK(cache.prune({}).entries == 0);
    const auto by_age = cache.prune({.unused_for = 36h});
    CHECK(by_age.entries == 1);
    CHECK(by_age.bytes > 1000);
    CHECK_FALSE(cache.load(some_key("0")));
    // Its provenance goes with it.
    CHECK(regular_files(fixture.directory()) == 5);
    CHECK(cache.prune({.to_bytes = bytes_in(fixture.directory())}).entries == 0);
    CHECK(cache.prune({.to_bytes = bytes_in(fixture.directory()) - 1}).entries == 1);
    CHECK_FALSE(cache.load(some_key("1")));
    CHECK(cache.prune({.to_bytes = 0}).entries == 4);
    CHECK(regular_files(fixture.directory()) == 0);
}

TEST_CASE("what the system does not let go is told by who prunes or removes what is bad") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    store_some(cache, 2, 1000);
    const fs::path stuck = cache.path_of(some_key("0"));
    write_file(stuck, "no entry");
    fs::permissions(stuck.parent_path(), fs::perms::owner_read | fs::perms::owner_exec);
    const int outcome = as_ordinary_user(fixture.folder(), [&] {
        DiskCache own(fixture.directory(), {});
        const auto verified = own.verify(true);
        if (verified.bad.size() != 1 || verified.bad[0].removed) {
            return 1;
        }
        const auto pruned = own.prune({.to_bytes = 0});
        return pruned.entries == 1 && contains(pruned.problem, "1 entries could not be removed")
                   ? 0
                   : 2;
    });
    CHECK(outcome == 0);
    CHECK(fs::exists(stuck));
    fs::permissions(stuck.parent_path(), fs::perms::owner_all);
    const auto verified = DiskCache(fixture.directory(), {}).verify(true);
    CHECK((verified.bad.empty() || ::geteuid() == 0));
}

TEST_CASE("an entry larger than the cache may be is not stored and pushes nothing out") {
    CacheFixture fixture;
    DiskCache cache({.directory = fixture.directory(), .byte_limit = 10'000}, fixture.sink());
    REQUIRE(cache.store(some_key("small"), some_entry()));
    CHECK_FALSE(cache.store(some_key("large"), some_entry(std::string(20'000, 'x'))));
    CHECK(fixture.warnings().size() == 1);
    CHECK(cache.load(some_key("small")));
    CHECK(cache.counters().failed_stores == 1);
}
