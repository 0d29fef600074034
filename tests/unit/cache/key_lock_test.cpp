#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backlight/cache/fault_injection.hpp"
#include "backlight/cache/key_lock.hpp"
#include "cache_test_support.hpp"

using backlight::cache::DiskCache;
using backlight::cache::KeyLock;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

namespace {

constexpr auto at_once = 0ms;
constexpr auto long_enough = 20s;

}  // namespace

TEST_CASE("the lock of a key is held by one and leaves no file behind") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    KeyLock first = cache.lock(some_key(), at_once);
    REQUIRE(first.held());
    CHECK(cache.lock(some_key(), at_once).state() == KeyLock::State::timed_out);
    CHECK(DiskCache(fixture.directory(), {}).lock(some_key(), at_once).state() ==
          KeyLock::State::timed_out);
    CHECK(cache.counters().lock_timeouts == 1);
    first.release();
    CHECK_FALSE(first.held());
    CHECK(regular_files(fixture.directory()) == 0);
    CHECK(cache.lock(some_key(), at_once).held());
}

TEST_CASE("a lock that is not had in time is told once and the caller goes on without") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const KeyLock held = cache.lock(some_key(), at_once);
    const auto begin = std::chrono::steady_clock::now();
    CHECK(cache.lock(some_key(), 30ms).state() == KeyLock::State::timed_out);
    const auto waited = std::chrono::steady_clock::now() - begin;
    CHECK(waited >= 30ms);
    CHECK(waited < 10s);
    CHECK(cache.lock(some_key(), at_once).state() == KeyLock::State::timed_out);
    CHECK(fixture.warnings().size() == 1);
    CHECK(cache.store(some_key(), some_entry()));
}

TEST_CASE("to try for a lock that another holds is no time-out to be told or counted") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    KeyLock held = cache.try_lock(some_key());
    REQUIRE(held.held());
    CHECK(cache.try_lock(some_key()).state() == KeyLock::State::timed_out);
    CHECK(cache.counters().lock_timeouts == 0);
    CHECK(fixture.warnings().empty());
    held.release();
    CHECK(cache.try_lock(some_key()).held());
}

TEST_CASE("the lock of one key does not hold up another") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const KeyLock one = cache.lock(some_key("v2"), at_once);
    const KeyLock other = cache.lock(some_key("v3"), at_once);
    CHECK(one.held());
    CHECK(other.held());
}

TEST_CASE("a lock moves with its object") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    KeyLock first = cache.lock(some_key(), at_once);
    KeyLock second = std::move(first);
    CHECK(second.held());
    CHECK(cache.lock(some_key(), at_once).state() == KeyLock::State::timed_out);
    second = KeyLock();
    CHECK(cache.lock(some_key(), at_once).held());
}

TEST_CASE("a lock does not outlive a holder that is killed") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const KeyLock lock = cache.lock(some_key(), at_once);
        const char held = lock.held() ? 1 : 0;
        static_cast<void>(::write(ready[1], &held, 1));
        ::pause();
        ::_exit(0);
    }
    char held = 0;
    REQUIRE(::read(ready[0], &held, 1) == 1);
    REQUIRE(held == 1);
    CHECK(cache.lock(some_key(), at_once).state() == KeyLock::State::timed_out);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
    CHECK(cache.lock(some_key(), long_enough).held());
    CHECK(regular_files(fixture.directory()) == 0);
}

TEST_CASE("a child that was forked while a lock was held does not keep it") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    KeyLock lock = cache.lock(some_key(), at_once);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::pause();
        ::_exit(0);
    }
    // Nor where the file of the lock cannot be removed, and is found again.
    backlight::cache::inject_faults([](backlight::cache::SystemCall call) noexcept {
        return call == backlight::cache::SystemCall::remove ? EBUSY : 0;
    });
    lock.release();
    backlight::cache::inject_faults(nullptr);
    CHECK(regular_files(fixture.directory()) == 1);
    CHECK(cache.lock(some_key(), 1s).held());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

TEST_CASE(
    "threads that take a lock by turns are never two at a time though its file comes and goes") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    std::atomic<int> inside = 0;
    std::atomic<int> together = 0;
    std::atomic<int> without = 0;
    std::atomic<bool> done = false;
    const fs::path lock_path = fs::path(cache.path_of(some_key())).replace_extension(".lock");
    // A sweep as another process would do it, which takes every lock for a leftover.
    std::thread sweeper([&] {
        DiskCache other({.directory = fixture.directory(), .leftover_age = 0s}, {});
        while (!done) {
            other.prune({});
        }
    });
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
        threads.emplace_back([&] {
            for (int turn = 0; turn < 30; ++turn) {
                const KeyLock lock = cache.lock(some_key(), long_enough);
                without += lock.held() ? 0 : 1;
                together += inside++ == 0 ? 0 : 1;
                std::this_thread::yield();
                --inside;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    done = true;
    sweeper.join();
    CHECK(together == 0);
    CHECK(without == 0);
    CHECK_FALSE(fs::exists(lock_path));
}

TEST_CASE("where no lock can be made the caller goes on without") {
    CacheFixture fixture;
    write_file(fixture.folder() / "file", "");
    DiskCache cache(fixture.folder() / "file" / "cache", fixture.sink());
    CHECK(cache.lock(some_key(), long_enough).state() == KeyLock::State::unavailable);
    fs::create_directory(fixture.folder() / "read_only");
    DiskCache shipped({.directory = fixture.folder() / "read_only", .read_only = true}, {});
    CHECK(shipped.lock(some_key(), long_enough).state() == KeyLock::State::unavailable);
    CHECK(fs::is_empty(fixture.folder() / "read_only"));
}
