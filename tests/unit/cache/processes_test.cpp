// Many processes with one cache, some of them killed.

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "backlight/cache/layered_cache.hpp"
#include "backlight/cache/single_flight.hpp"
#include "cache_test_support.hpp"

using backlight::cache::DiskCache;
using backlight::cache::Entry;
using backlight::cache::Key;
using backlight::cache::KeyLock;
using backlight::cache::LayeredCache;
using backlight::cache::SingleFlight;
using namespace backlight::cache_test;
using namespace std::chrono_literals;

namespace {

/// A process of its own that runs `body`, which makes no assertions.
template <typename Body>
pid_t start_process(Body&& body) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::_exit(body());
    }
    return child;
}

int exit_code(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// Of varying size and content, so that a mixture of two is none.
Entry entry_number(std::uint64_t number) {
    const auto size = static_cast<std::size_t>(20'000 + number * 7919 % 60'000);
    return {.metadata = std::to_string(number),
            .payload = bytes_of(std::string(size, static_cast<char>('a' + number % 26)))};
}

/// What a runtime does for a kernel, with a compiler that writes a line of a log instead.
class FakeRuntime {
  public:
    FakeRuntime(const fs::path& directory, const fs::path& log)
        : cache_({.writable = {.directory = directory}}, {}),
          log_(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600)) {}
    ~FakeRuntime() { ::close(log_); }
    FakeRuntime(const FakeRuntime&) = delete;
    FakeRuntime& operator=(const FakeRuntime&) = delete;

    Entry get(const Key& key) {
        if (auto kept = in_memory(key)) {
            return *kept;
        }
        return flights_
            .run(key.text(),
                 [&] {
                     if (auto kept = in_memory(key)) {
                         return *kept;
                     }
                     Entry entry = load_or_compile(key);
                     const std::lock_guard lock(mutex_);
                     kept_.emplace(key.text(), entry);
                     return entry;
                 })
            .result;
    }

  private:
    std::optional<Entry> in_memory(const Key& key) {
        const std::lock_guard lock(mutex_);
        const auto found = kept_.find(key.text());
        return found == kept_.end() ? std::nullopt : std::optional(found->second);
    }

    Entry load_or_compile(const Key& key) {
        if (auto hit = cache_.load(key)) {
            return hit->entry;
        }
        const KeyLock lock = cache_.lock(key, 60s);
        if (auto hit = cache_.load_again(key)) {
            return hit->entry;
        }
        const std::string line = key.digest() + "\n";
        static_cast<void>(::write(log_, line.data(), line.size()));
        std::this_thread::sleep_for(5ms);
        Entry entry = some_entry(key.text());
        cache_.store(key, entry, "compiled by process " + std::to_string(::getpid()));
        return entry;
    }

    LayeredCache cache_;
    int log_;
    SingleFlight<Entry> flights_;
    std::mutex mutex_;
    std::map<std::string, Entry> kept_;
};

}  // namespace

TEST_CASE("eight processes of sixteen threads that want the same twenty kernels compile twenty") {
    constexpr int processes = 8;
    constexpr int threads = 16;
    constexpr int kernels = 20;
    CacheFixture fixture;
    const fs::path log = fixture.folder() / "compiles";
    int start[2];
    REQUIRE(::pipe(start) == 0);
    std::vector<pid_t> children;
    for (int process = 0; process < processes; ++process) {
        children.push_back(start_process([&, process] {
            FakeRuntime runtime(fixture.directory(), log);
            std::atomic<int> wrong = 0;
            ::close(start[1]);
            char none = 0;
            // Ends when the parent closes its side, for all at the same time.
            static_cast<void>(::read(start[0], &none, 1));
            std::vector<std::thread> workers;
            for (int thread = 0; thread < threads; ++thread) {
                workers.emplace_back([&, thread] {
                    for (int i = 0; i < kernels; ++i) {
                        const Key key =
                            some_key(std::to_string((i + thread + 3 * process) % kernels));
                        wrong += runtime.get(key) == some_entry(key.text()) ? 0 : 1;
                    }
                });
            }
            for (std::thread& worker : workers) {
                worker.join();
            }
            return wrong == 0 ? 0 : 1;
        }));
    }
    ::close(start[0]);
    ::close(start[1]);
    for (const pid_t child : children) {
        CHECK(exit_code(child) == 0);
    }
    const std::string compiles = read_file(log);
    CHECK(std::count(compiles.begin(), compiles.end(), '\n') == kernels);
    DiskCache cache(fixture.directory(), fixture.sink());
    CHECK(cache.verify(false).entries.size() == kernels);
    CHECK(cache.verify(false).bad.empty());
    // Entries and what is said of them: no lock and no temporary is left.
    CHECK(regular_files(fixture.directory()) == 2 * kernels);
}

namespace {

void kill_while_publishing(const fs::path& parent, int kills) {
    constexpr int at_a_time = 4;
    constexpr int keys = 3;
    CacheFixture fixture(parent);
    DiskCache reader(fixture.directory(), fixture.sink());
    std::mt19937 random(20240817);
    std::uniform_int_distribution<int> microseconds(0, 1500);
    int killed = 0;
    int wrong = 0;
    int found = 0;
    const auto check_all = [&] {
        for (int i = 0; i < keys; ++i) {
            if (const auto entry = reader.load(some_key(std::to_string(i)))) {
                ++found;
                wrong += *entry == entry_number(std::stoull(entry->metadata)) ? 0 : 1;
            }
        }
    };
    while (killed < kills) {
        std::vector<pid_t> children;
        for (int i = 0; i < at_a_time; ++i) {
            children.push_back(start_process([&, i] {
                DiskCache cache(fixture.directory(), {});
                for (std::uint64_t number = static_cast<std::uint64_t>(killed + i);; ++number) {
                    const Key key = some_key(std::to_string(number % keys));
                    const KeyLock lock = cache.lock(key, 1ms);
                    cache.store(key, entry_number(number), "killed");
                }
                return 0;
            }));
        }
        for (const pid_t child : children) {
            std::this_thread::sleep_for(std::chrono::microseconds(microseconds(random)));
            check_all();
            ::kill(child, SIGKILL);
            REQUIRE(exit_code(child) == -1);
            ++killed;
        }
    }
    check_all();
    CHECK(wrong == 0);
    CHECK(found > kills / 2);
    CHECK(fixture.warnings().empty());
    // No lock outlives its holder, and what the dead have left is swept.
    for (int i = 0; i < keys; ++i) {
        CHECK(reader.lock(some_key(std::to_string(i)), 0ms).held());
    }
    DiskCache sweeper({.directory = fixture.directory(), .leftover_age = 0s}, fixture.sink());
    const auto report = sweeper.prune({});
    MESSAGE("whole entries read: ", found, "; leftovers swept: ", report.leftovers);
    CHECK(report.leftovers > 0);
    CHECK(regular_files(fixture.directory()) <= 2 * keys);
    CHECK(sweeper.verify(false).bad.empty());
}

}  // namespace

TEST_CASE("a thousand kills while entries are published leave no wrong and no partial entry") {
#ifdef __SANITIZE_ADDRESS__
    constexpr int kills = 100;  // A fork takes ten times as long there.
#else
    constexpr int kills = 1000;
#endif
    // On a disk most kills come while it writes; in memory they come anywhere.
    kill_while_publishing(fs::temp_directory_path(), kills / 2);
    kill_while_publishing(memory_directory(), kills / 2);
}

TEST_CASE("a directory that is copied elsewhere hits there") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    for (int i = 0; i < 41; ++i) {
        REQUIRE(cache.store(some_key(std::to_string(i)), some_entry(std::to_string(i))));
    }
    const fs::path copy = fixture.folder() / "another machine" / "cache";
    fs::create_directories(copy);
    fs::copy(fixture.directory(), copy, fs::copy_options::recursive);
    DiskCache elsewhere(copy, fixture.sink());
    for (int i = 0; i < 41; ++i) {
        CHECK(elsewhere.load(some_key(std::to_string(i))) == some_entry(std::to_string(i)));
    }
    CHECK(elsewhere.counters().hits == 41);
    CHECK(fixture.warnings().empty());
}

TEST_CASE("a hit of a hundred kilobytes takes microseconds") {
    CacheFixture fixture;
    LayeredCache cache({.writable = {.directory = fixture.directory()}}, fixture.sink());
    const Key key = some_key().add("specialisation", std::string(2000, 's'));
    REQUIRE(cache.store(key, some_entry(std::string(100'000, 'x'))));
    constexpr int repeats = 200;
    std::vector<double> microseconds;
    for (int i = 0; i < repeats; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        const auto hit = cache.load(key);
        const std::chrono::duration<double, std::micro> taken =
            std::chrono::steady_clock::now() - begin;
        REQUIRE(hit);
        microseconds.push_back(taken.count());
    }
    std::sort(microseconds.begin(), microseconds.end());
    MESSAGE("median of ", repeats, " hits: ", microseconds[repeats / 2], " microseconds");
    // Ten times what is aimed at, and of the fastest: machines that run tests are busy.
    CHECK(microseconds[0] < 1000.0);
}
