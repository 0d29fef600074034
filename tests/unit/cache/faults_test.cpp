// What a disk may do that cannot be arranged on the machine at hand: every kind of system call
// fails with every error, at its first call, its second, and so on.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <vector>

#include "backlight/cache/fault_injection.hpp"
#include "backlight/cache/layered_cache.hpp"
#include "backlight/cache/pack.hpp"
#include "cache_test_support.hpp"

using backlight::cache::Check;
using backlight::cache::DiskCache;
using backlight::cache::inject_faults;
using backlight::cache::LayeredCache;
using backlight::cache::Pack;
using backlight::cache::PackedEntry;
using backlight::cache::SystemCall;
using backlight::cache::write_pack;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

namespace {

std::atomic<SystemCall> failing_call = SystemCall::open;
std::atomic<int> failing_error = 0;
/// Calls that are still made before one fails; those after it fail too if `for_ever`.
std::atomic<int> calls_before = 0;
std::atomic<bool> for_ever = false;
std::atomic<int> failed = 0;
std::array<std::atomic<int>, 12> calls_made{};

int fail_as_told(SystemCall call) noexcept {
    ++calls_made.at(static_cast<std::size_t>(call));
    if (call != failing_call) {
        return 0;
    }
    const int left = calls_before--;
    if (left > 0 || (left < 0 && !for_ever)) {
        return 0;
    }
    ++failed;
    return failing_error;
}

/// Faults for the life of the object.
class Faults {
  public:
    Faults(SystemCall call, int error, int before, bool ever) {
        failing_call = call;
        failing_error = error;
        calls_before = before;
        for_ever = ever;
        failed = 0;
        inject_faults(fail_as_told);
    }
    ~Faults() { inject_faults(nullptr); }
    Faults(const Faults&) = delete;
    Faults& operator=(const Faults&) = delete;
};

constexpr std::array all_calls = {
    SystemCall::open,           SystemCall::status, SystemCall::read,   SystemCall::write,
    SystemCall::synchronise,    SystemCall::close,  SystemCall::rename, SystemCall::remove,
    SystemCall::make_directory, SystemCall::list,   SystemCall::lock,   SystemCall::touch};
constexpr std::array all_errors = {EACCES, EROFS,  ENOSPC, EDQUOT, ENOENT, ENOTDIR, ESTALE, EBUSY,
                                   EMFILE, ENFILE, EIO,    EPERM,  ENOLCK, ELOOP,   EEXIST};

}  // namespace

TEST_CASE("whatever call fails however a load is the entry or a miss and nothing throws") {
    for (const SystemCall call : all_calls) {
        for (const int error : all_errors) {
            // Every error from the first call on; two of them at each call in turn, until so many
            // are made that none fails any more.
            const int steps = error == EIO || error == ENOENT ? 100 : 1;
            for (int before = 0; before < steps; ++before) {
                const bool ever = before == 0;
                CAPTURE(static_cast<int>(call));
                CAPTURE(error);
                CAPTURE(before);
                CacheFixture fixture(memory_directory());
                REQUIRE(DiskCache(fixture.directory(), {}).store(some_key(), some_entry(), "old"));
                make_older(DiskCache(fixture.directory(), {}).path_of(some_key()), 24h);
                LayeredCache cache({.writable = {.directory = fixture.directory()}},
                                   fixture.sink());
                int faults = 0;
                bool stored = false;
                {
                    const Faults injected(call, error, before, ever);
                    const auto hit = cache.load(some_key());
                    CHECK((!hit || hit->entry == some_entry()));
                    CHECK_FALSE(cache.load(some_key("new")));
                    const auto lock = cache.lock(some_key("new"), 0ms);
                    stored = cache.store(some_key("new"), some_entry("new"), "new");
                    const auto again = cache.load(some_key("new"));
                    CHECK((!again || (stored && again->entry == some_entry("new"))));
                    cache.locate(some_key());
                    cache.nearest(some_key(), 1);
                    cache.writable()->verify(false);
                    cache.writable()->prune({.unused_for = 1000h});
                    faults = failed;
                }
                const auto counters = cache.counters();
                CHECK(counters.writable.stores + counters.writable.failed_stores == 1);
                // One warning for a kind of problem, however often it comes.
                CHECK(fixture.warnings().size() <= 4);
                // Then all is well again, and nothing wrong was left.
                LayeredCache later({.writable = {.directory = fixture.directory()}},
                                   fixture.sink());
                const auto found = later.load(some_key("new"));
                CHECK((!found || found->entry == some_entry("new")));
                CHECK((!stored || found));
                CHECK(later.store(some_key("new"), some_entry("anew")));
                const auto anew = later.load(some_key("new"));
                REQUIRE(anew);
                CHECK(anew->entry == some_entry("anew"));
                CHECK(fixture.warnings().empty());
                if (faults == 0) {
                    break;
                }
            }
        }
    }
}

TEST_CASE("whatever call fails however a pack gives its entries or misses") {
    CacheFixture fixture(memory_directory());
    const fs::path path = fixture.folder() / "pack";
    const std::vector<PackedEntry> entries = {{some_key(), some_entry()}};
    std::string reason;
    REQUIRE(write_pack(path, entries, reason));
    for (const SystemCall call : all_calls) {
        for (const int error : all_errors) {
            for (int before = 0; before < 20; ++before) {
                const Faults injected(call, error, before, false);
                Pack pack(path, fixture.sink());
                const auto entry = pack.load(some_key());
                CHECK((!entry || *entry == some_entry()));
                CHECK((entry || !fixture.warnings().empty()));
                pack.list(Check::everything);
                const fs::path other = fixture.folder() / "other";
                const bool written = write_pack(other, entries, reason);
                CHECK(written == fs::exists(other));
                fs::remove(other);
                fixture.warnings();
                if (failed == 0) {
                    break;
                }
            }
        }
    }
}

TEST_CASE("a store reads nothing back") {
    // Another process that won the race to a network disk may not be seen yet.
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    const Faults injected(SystemCall::read, ESTALE, 0, true);
    const int reads = calls_made.at(static_cast<std::size_t>(SystemCall::read));
    CHECK(cache.store(some_key(), some_entry()));
    CHECK(cache.store(some_key(), some_entry()));
    CHECK(calls_made.at(static_cast<std::size_t>(SystemCall::read)) == reads);
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a hit makes few system calls and writes nothing") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    REQUIRE(cache.load(some_key()));
    const Faults counted(SystemCall::open, 0, 0, false);
    int before = 0;
    for (const auto& count : calls_made) {
        before += count;
    }
    CHECK(cache.load(some_key()));
    int after = 0;
    for (const auto& count : calls_made) {
        after += count;
    }
    // The directory looked at, the entry opened, looked at, and read.
    CHECK(after - before == 4);
}

TEST_CASE("stores on a disk that stays full are told once and leave nothing behind") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    {
        const Faults full(SystemCall::write, ENOSPC, 0, true);
        for (int i = 0; i < 300; ++i) {
            CHECK_FALSE(cache.store(some_key(std::to_string(i)), some_entry()));
        }
    }
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "No space left on device"));
    CHECK(cache.counters().failed_stores == 300);
    CHECK(regular_files(fixture.directory()) == 1);
}

TEST_CASE("a cache on a disk that cannot be written serves what it has and is told once") {
    CacheFixture fixture;
    DiskCache maker(fixture.directory(), {});
    REQUIRE(maker.store(some_key(), some_entry()));
    make_older(maker.path_of(some_key()), 24h);
    for (const auto& item : fs::recursive_directory_iterator(fixture.directory())) {
        if (item.is_directory()) {
            fs::permissions(item.path(), fs::perms::owner_read | fs::perms::owner_exec);
        }
    }
    fs::permissions(fixture.directory(), fs::perms::owner_read | fs::perms::owner_exec);
    const int failure = as_ordinary_user(fixture.folder(), [&] {
        LayeredCache cache({.writable = {.directory = fixture.directory()}}, fixture.sink());
        const auto hit = cache.load(some_key());
        if (!hit || hit->entry != some_entry()) {
            return 1;
        }
        for (int i = 0; i < 20; ++i) {
            const backlight::cache::Key key = some_key(std::to_string(i));
            if (cache.load(key) || cache.lock(key, 10s).held() || cache.store(key, some_entry())) {
                return 2;
            }
        }
        const auto warnings = fixture.warnings();
        return warnings.size() == 1 && contains(warnings[0], "Permission denied") ? 0 : 3;
    });
    CHECK(failure == 0);
    fs::permissions(fixture.directory(), fs::perms::owner_all);
}

TEST_CASE("a home that cannot be written leaves kernels in memory only") {
    CacheFixture fixture;
    fs::create_directory(fixture.folder() / "home");
    fs::permissions(fixture.folder() / "home", fs::perms::owner_read | fs::perms::owner_exec);
    const int failure = as_ordinary_user(fixture.folder(), [&] {
        const fs::path directory = backlight::cache::default_directory(
            nullptr, nullptr, (fixture.folder() / "home").c_str());
        DiskCache cache(directory, fixture.sink());
        if (cache.load(some_key()) || cache.store(some_key(), some_entry())) {
            return 1;
        }
        const auto warnings = fixture.warnings();
        return warnings.size() == 1 && contains(warnings[0], directory.native()) ? 0 : 2;
    });
    CHECK(failure == 0);
}

TEST_CASE("a process without a free descriptor has misses and one warning for each kind") {
    CacheFixture fixture;
    REQUIRE(DiskCache(fixture.directory(), {}).store(some_key(), some_entry()));
    const int failure = as_ordinary_user(fixture.folder(), [&] {
        DiskCache cache(fixture.directory(), fixture.sink());
        if (!cache.load(some_key())) {
            return 1;
        }
        std::vector<int> taken;
        rlimit few{.rlim_cur = 40, .rlim_max = 40};
        ::setrlimit(RLIMIT_NOFILE, &few);
        for (int next = 0; (next = ::open("/dev/null", O_RDONLY)) >= 0;) {
            taken.push_back(next);
        }
        for (int i = 0; i < 3; ++i) {
            if (cache.load(some_key()) || cache.store(some_key("new"), some_entry()) ||
                cache.lock(some_key(), 1s).held()) {
                return 2;
            }
        }
        if (fixture.warnings().size() != 2) {
            return 3;
        }
        for (const int descriptor : taken) {
            ::close(descriptor);
        }
        return cache.load(some_key()) && cache.store(some_key("new"), some_entry()) ? 0 : 4;
    });
    CHECK(failure == 0);
}
