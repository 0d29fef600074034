// The file of a tuning database where it is not what it should be, and where others are at it.

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "backlight/cache/key_lock.hpp"
#include "backlight/error.hpp"
#include "cache/cache_test_support.hpp"
#include "scripted_backend.hpp"
#include "tuning/tunings.hpp"
#include "tuning_test_support.hpp"

using namespace backlight;
using namespace backlight::test;
using namespace backlight::tuning;
using cache_test::as_ordinary_user;

namespace {

const TileConfig v1 = kernel_preset("v1");
const TileConfig v2 = kernel_preset("v2");
const TileConfig v3 = kernel_preset("v3");

/// What plans use of it.
Choice choice_of(Tunings& tunings) {
    return tunings.choose(tuned_problem(), properties(), [](const Record&) { return true; });
}

void add(const std::filesystem::path& file) {
    add_to_file(file, database_of({record(v1, 1)}), Addition::merged);
}

const std::string later_version =
    R"({"format": "backlight tuning", "version": 99, "records": [{"of": "another build"}]})";

}  // namespace

TEST_CASE("what is no file is neither replaced nor moved whatever a path was mistaken for") {
    const TemporaryDirectory folder;
    const auto directory = folder.path() / "project";
    std::filesystem::create_directory(directory);
    write(directory / "precious", "work");
    check_refused(ErrorCode::file_error, {directory.string(), "no regular file"},
                  [&] { add(directory); });
    CHECK(content_of(directory / "precious") == "work");

    // As /dev/null is no file either.
    const auto pipe = folder.path() / "pipe";
    REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    check_refused(ErrorCode::file_error, {pipe.string(), "no regular file"}, [&] { add(pipe); });
    CHECK(std::filesystem::is_fifo(pipe));
    CHECK(!std::filesystem::exists(pipe.string() + ".broken"));

    const CapturedLog log;
    Tunings tunings(pipe);
    tunings.add(database_of({record(v1, 0.5)}));
    CHECK(choice_of(tunings).config == v1);
    CHECK(log.count("in this process only") == 1);
}

TEST_CASE("a database that cannot be read is not taken for a broken one") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    write_database(file, database_of({record(v2, 2)}));
    const std::string before = content_of(file);
    REQUIRE(::chmod(file.c_str(), 0) == 0);
    const int refused = as_ordinary_user(folder.path(), [&] {
        try {
            add(file);
            return 1;
        } catch (const Error& error) {
            return error.code() == ErrorCode::file_error ? 0 : 2;
        }
    });
    CHECK(refused == 0);
    REQUIRE(::chmod(file.c_str(), 0600) == 0);
    CHECK(content_of(file) == before);
    CHECK(!std::filesystem::exists(file.string() + ".broken"));
}

TEST_CASE("a database of a later version is left to the build that wrote it") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    write(file, later_version);
    check_refused(ErrorCode::file_error, {file.string(), "of a version that this build"},
                  [&] { add(file); });
    const CapturedLog log;
    Tunings tunings(file);
    tunings.add(database_of({record(v1, 0.5)}));
    CHECK(choice_of(tunings).config == v1);
    CHECK(log.count("in this process only") == 1);
    CHECK(content_of(file) == later_version);
    CHECK(!std::filesystem::exists(file.string() + ".broken"));
}

TEST_CASE("a broken database is kept beside those that were kept before") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    const CapturedLog log;
    for (const char* text : {"one", "two", "three"}) {
        write(file, text);
        add(file);
    }
    CHECK(content_of(file.string() + ".broken") == "one");
    CHECK(content_of(file.string() + ".broken.2") == "two");
    CHECK(content_of(file.string() + ".broken.3") == "three");
}

TEST_CASE("a link of another user is not followed by who replaces the database") {
    if (::geteuid() != 0) {
        MESSAGE("only root can give a link to another user");
        return;
    }
    const TemporaryDirectory folder;
    const auto target = folder.path() / "keys";
    const auto link = folder.path() / "tuning.json";
    write(target, "a file of this user");
    std::filesystem::create_symlink(target, link);
    constexpr uid_t other = 65534;
    REQUIRE(::lchown(link.c_str(), other, other) == 0);
    check_refused(ErrorCode::file_error, {link.string(), "symbolic link of user 65534"},
                  [&] { add(link); });
    CHECK(content_of(target) == "a file of this user");

    // A link of the user's own stays one, and is followed.
    REQUIRE(::lchown(link.c_str(), 0, 0) == 0);
    std::filesystem::remove(target);
    write_database(target, Database{});
    add(link);
    CHECK(std::filesystem::is_symlink(link));
    CHECK(read_database(target).records().size() == 1);
}

TEST_CASE("a lock that its holder does not give up holds up a tuner for no longer than told") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    // Whether the holder is stopped or busy makes no difference to who waits.
    const auto held =
        cache::KeyLock::acquire(file.string() + ".lock", std::chrono::milliseconds(0));
    REQUIRE(held.held());
    const CapturedLog log;
    add_to_file(file, database_of({record(v1, 1)}), Addition::merged,
                std::chrono::milliseconds(20));
    CHECK(read_database(file).records().size() == 1);
    CHECK(log.count("has held its lock for too long") == 1);
}

TEST_CASE("no plan waits for a tuner that waits for the database's lock") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    auto held = cache::KeyLock::acquire(file.string() + ".lock", std::chrono::milliseconds(0));
    REQUIRE(held.held());
    Tunings tunings(file);
    std::atomic<bool> added = false;
    std::thread tuner([&] {
        tunings.add(database_of({record(v1, 0.5)}));
        added = true;
    });
    // What was tuned counts as soon as it is known.
    while (choice_of(tunings).config != v1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    CHECK(!added);
    held.release();
    tuner.join();
    CHECK(read_database(file).records().size() == 1);
}

TEST_CASE("what has just been measured counts though the file has a date from a clock ahead") {
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    Record ahead = record(v1, 3);
    ahead.date = "2099-01-01T00:00:00Z";
    ahead.kernel_digest = "of an earlier kernel";
    write_database(file, database_of({ahead, record(v2, 1)}));
    Tunings tunings(file);
    const Record measured = record(v1, 0.5);
    tunings.add(database_of({measured}));
    CHECK(choice_of(tunings).config == v1);
    CHECK(read_database(file) == database_of({measured, record(v2, 1)}));
    CHECK(tunings.user() == database_of({measured, record(v2, 1)}));
}

TEST_CASE("of records that someone wrote twice into a file the newer counts in either order") {
    Record newer = record(v2, 2);
    newer.date = "2026-02-01T00:00:00Z";
    const auto text_of = [](const Record& first, const Record& second) {
        const std::string one = to_json_text(database_of({first}));
        const std::string two = to_json_text(database_of({second}));
        const std::size_t begin = two.find('\n') + 1;
        const std::size_t end = two.rfind("\n]}");
        std::string text = one;
        return text.insert(text.rfind("\n]}"), ",\n" + two.substr(begin, end - begin));
    };
    for (const std::string& text : {text_of(record(v2, 1), newer), text_of(newer, record(v2, 1))}) {
        CHECK(from_json_text(text, "text") == database_of({newer}));
        CHECK(checked_from_json_text(text, "text") == database_of({newer}));
    }
}

TEST_CASE("a record that a person has changed counts for plans however it is spaced") {
    std::string text = to_json_text(database_of({record(v2, 2), record(v3, 3)}));
    const std::string field = "\"checked\":true";
    text.replace(text.find(field), field.size(), "\"checked\" : true");
    CHECK(checked_from_json_text(text, "text") == database_of({record(v2, 2), record(v3, 3)}));
}

TEST_CASE("a database that is nested without end is broken and no crash") {
    std::string text = to_json_text(database_of({record(v2, 2)}));
    constexpr std::size_t deep = 1'000'000;
    text.insert(text.rfind("\n]}"), ",\n" + std::string(deep, '[') + std::string(deep, ']'));
    check_refused(ErrorCode::file_error, {"nested"}, [&] { from_json_text(text, "text"); });
    const TemporaryDirectory folder;
    const auto file = folder.path() / "tuning.json";
    write(file, text);
    const CapturedLog log;
    Tunings tunings(file);
    tunings.add(database_of({record(v1, 0.5)}));
    CHECK(read_database(file).records().size() == 1);
    CHECK(content_of(file.string() + ".broken") == text);
}
