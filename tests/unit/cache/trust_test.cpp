#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "backlight/cache/trust.hpp"
#include "cache_test_support.hpp"

using backlight::cache::DiskCache;
using backlight::cache::Identity;
using backlight::cache::Ownership;
using backlight::cache::reason_to_distrust;
using backlight::cache::root_alias_from;
using backlight::cache::TrustedAs;
using namespace backlight::cache_test;

namespace {

constexpr uid_t user = 1000;
constexpr uid_t other = 1001;
constexpr uid_t nobody = 65534;
const Identity somebody{.user = user};

bool trusted(const Ownership& thing, TrustedAs use, const Identity& identity = somebody) {
    return !reason_to_distrust(thing, use, identity);
}

Ownership directory(uid_t owner, mode_t permissions, gid_t group = 100) {
    return {.owner = owner, .group = group, .mode = S_IFDIR | permissions};
}

Ownership file(uid_t owner, mode_t permissions) {
    return {.owner = owner, .group = 100, .mode = S_IFREG | permissions};
}

/// Loads and stores must do nothing there, and say why once.
void check_refused(CacheFixture& fixture, const fs::path& cache_directory,
                   std::string_view fragment) {
    DiskCache cache(cache_directory, fixture.sink());
    for (int repeat = 0; repeat < 2; ++repeat) {
        CHECK_FALSE(cache.load(some_key()));
        CHECK_FALSE(cache.holds(some_key()));
        CHECK_FALSE(cache.store(some_key("new"), some_entry()));
        CHECK_FALSE(cache.lock(some_key("new"), std::chrono::milliseconds(0)).held());
        CHECK_FALSE(cache.prune({.to_bytes = 0}).problem.empty());
        CHECK_FALSE(cache.list(backlight::cache::Check::heads).problem.empty());
    }
    CHECK_FALSE(fs::exists(cache.path_of(some_key("new"))));
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK_MESSAGE(contains(warnings[0], fragment), warnings[0]);
    CHECK(contains(warnings[0], cache.refusal()));
    CHECK_FALSE(cache.refusal().empty());
}

}  // namespace

TEST_CASE("a directory is trusted only where its owner alone may write") {
    for (const TrustedAs use : {TrustedAs::writable_directory, TrustedAs::read_only_directory}) {
        CHECK(trusted(directory(user, 0700), use));
        CHECK(trusted(directory(user, 0755), use));
        CHECK_FALSE(trusted(directory(user, 0770), use));
        CHECK_FALSE(trusted(directory(user, 0707), use));
        CHECK_FALSE(trusted(directory(user, 01777), use));
        CHECK_FALSE(trusted(directory(other, 0755), use));
        CHECK_FALSE(trusted(file(user, 0600), use));
    }
}

TEST_CASE("root may own a read-only layer but not one that is written") {
    CHECK(trusted(directory(0, 0755), TrustedAs::read_only_directory));
    CHECK_FALSE(trusted(directory(0, 0755), TrustedAs::writable_directory));
    CHECK_FALSE(trusted(directory(0, 0775), TrustedAs::read_only_directory));
    CHECK(trusted(file(0, 0644), TrustedAs::file));
}

TEST_CASE("a directory on the way may be written by others only if it is sticky") {
    CHECK(trusted(directory(0, 0755), TrustedAs::ancestor));
    CHECK(trusted(directory(0, 01777), TrustedAs::ancestor));
    CHECK(trusted(directory(user, 0700), TrustedAs::ancestor));
    CHECK_FALSE(trusted(directory(0, 0777), TrustedAs::ancestor));
    CHECK_FALSE(trusted(directory(0, 0775), TrustedAs::ancestor));
    CHECK_FALSE(trusted(directory(other, 0755), TrustedAs::ancestor));
    CHECK_FALSE(trusted(directory(other, 01777), TrustedAs::ancestor));
}

TEST_CASE("the group that bears the number of its user is the user") {
    CHECK(trusted(directory(user, 0775, user), TrustedAs::ancestor));
    CHECK(trusted(directory(user, 0770, user), TrustedAs::writable_directory));
    CHECK_FALSE(trusted(directory(user, 0777, user), TrustedAs::writable_directory));
    CHECK_FALSE(trusted(directory(0, 0775, user), TrustedAs::read_only_directory));
    CHECK_FALSE(trusted(directory(other, 0775, other), TrustedAs::ancestor));
}

TEST_CASE("links and files are trusted by their owners and files by their modes too") {
    const Ownership link{.owner = user, .group = 100, .mode = S_IFLNK | 0777};
    CHECK(trusted(link, TrustedAs::link));
    CHECK_FALSE(trusted({.owner = other, .group = 100, .mode = S_IFLNK | 0777}, TrustedAs::link));
    CHECK_FALSE(trusted(link, TrustedAs::file));
    CHECK(trusted(file(user, 0600), TrustedAs::file));
    CHECK_FALSE(trusted(file(user, 0620), TrustedAs::file));
    CHECK_FALSE(trusted(file(user, 0602), TrustedAs::file));
    CHECK_FALSE(trusted(file(other, 0644), TrustedAs::file));
    CHECK_FALSE(trusted(directory(user, 0700), TrustedAs::file));
}

TEST_CASE("where root has no number of its own the number that stands for it is root's") {
    // The whole range, as outside of any namespace.
    CHECK_FALSE(root_alias_from("         0          0 4294967295\n", "65534\n"));
    // A user alone, as rootless containers map it.
    CHECK(root_alias_from("      1000       1000          1\n", "65534\n") == nobody);
    CHECK(root_alias_from("0 1000 1\n1 100000 65536\n", "65534\n") == nobody);
    CHECK_FALSE(root_alias_from("", "65534\n"));
    CHECK_FALSE(root_alias_from("0 1000 1\n", ""));

    const Identity in_namespace{.user = user, .root_alias = nobody};
    CHECK(trusted(directory(nobody, 0755), TrustedAs::ancestor, in_namespace));
    CHECK(trusted(directory(nobody, 0755), TrustedAs::read_only_directory, in_namespace));
    CHECK_FALSE(trusted(directory(nobody, 0755), TrustedAs::writable_directory, in_namespace));
    CHECK_FALSE(trusted(directory(nobody, 0755), TrustedAs::ancestor));
}

TEST_CASE("a cache directory that others can write is refused and told once") {
    for (const fs::perms writers : {fs::perms::group_write, fs::perms::others_write}) {
        CacheFixture fixture;
        REQUIRE(DiskCache(fixture.directory(), {}).store(some_key(), some_entry()));
        if (writers == fs::perms::group_write) {
            // Not a group that is the user's own.
            if (::chown(fixture.directory().c_str(), static_cast<uid_t>(-1), 12345) != 0) {
                continue;
            }
        }
        fs::permissions(fixture.directory(), writers, fs::perm_options::add);
        check_refused(fixture, fixture.directory(), "can be written by");
        // Once that is put right, it is used without a new start.
        fs::permissions(fixture.directory(), writers, fs::perm_options::remove);
        CHECK(DiskCache(fixture.directory(), {}).load(some_key()) == some_entry());
    }
}

TEST_CASE("a directory that becomes open to others is refused by a cache that has used it") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    REQUIRE(cache.load(some_key()));
    fs::permissions(fixture.directory(), fs::perms::all);
    CHECK_FALSE(cache.load(some_key()));
    CHECK_FALSE(cache.store(some_key(), some_entry()));
    CHECK(fixture.warnings().size() == 1);
    fs::permissions(fixture.directory(), fs::perms::owner_all);
    CHECK(cache.load(some_key()) == some_entry());
    CHECK(cache.refusal().empty());
}

TEST_CASE("a cache below a directory that others can write is refused before it is made too") {
    CacheFixture fixture;
    const fs::path open = fixture.folder() / "open";
    REQUIRE(DiskCache(open / "cache", {}).store(some_key(), some_entry()));
    fs::permissions(open, fs::perms::all);
    check_refused(fixture, open / "cache", "open can be written by");
    check_refused(fixture, open / "new" / "cache", "open can be written by");
    CHECK_FALSE(fs::exists(open / "new"));
    // As in /tmp, nobody can move what is another's.
    fs::permissions(open, fs::perms::all | fs::perms::sticky_bit);
    CHECK(DiskCache(open / "cache", {}).load(some_key()) == some_entry());
}

TEST_CASE("a symbolic link to the cache is followed and what it leads through is judged") {
    CacheFixture fixture;
    const fs::path open = fixture.folder() / "open";
    REQUIRE(DiskCache(open / "cache", {}).store(some_key(), some_entry()));
    const fs::path link = fixture.folder() / "link";
    fs::create_directory_symlink("open/../open/cache/", link);
    CHECK(DiskCache(link, fixture.sink()).load(some_key()) == some_entry());
    CHECK(fixture.warnings().empty());
    fs::permissions(open, fs::perms::all);
    check_refused(fixture, link, "open can be written by");

    const fs::path ring = fixture.folder() / "ring";
    fs::create_directory_symlink("ring", ring);
    CHECK_FALSE(DiskCache(ring, fixture.sink()).load(some_key()));
    CHECK(fixture.warnings().size() == 1);
}

TEST_CASE("a cache directory of another user is refused") {
    if (::geteuid() != 0) {
        MESSAGE("only root can give a directory to another user");
        return;
    }
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), {});
    REQUIRE(cache.store(some_key(), some_entry()));
    REQUIRE(::chown(fixture.directory().c_str(), nobody, nobody) == 0);
    check_refused(fixture, fixture.directory(), "belongs to user 65534");
    // And an entry of theirs in a directory of ours.
    REQUIRE(::chown(fixture.directory().c_str(), 0, 0) == 0);
    REQUIRE(::chown(cache.path_of(some_key()).c_str(), nobody, nobody) == 0);
    CHECK_FALSE(DiskCache(fixture.directory(), fixture.sink()).load(some_key()));
    const auto warnings = fixture.warnings();
    REQUIRE(warnings.size() == 1);
    CHECK(contains(warnings[0], "belongs to user 65534"));
}

TEST_CASE("an entry that others can write or that is a link is not used") {
    CacheFixture fixture;
    DiskCache cache(fixture.directory(), fixture.sink());
    REQUIRE(cache.store(some_key(), some_entry()));
    const fs::path path = cache.path_of(some_key());
    fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
    CHECK_FALSE(cache.load(some_key()));
    CHECK_FALSE(fs::exists(path));
    CHECK(fixture.warnings().size() == 1);

    REQUIRE(cache.store(some_key(), some_entry()));
    fs::rename(path, fixture.folder() / "elsewhere");
    fs::create_symlink(fixture.folder() / "elsewhere", path);
    CHECK_FALSE(cache.load(some_key()));
    CHECK(fixture.warnings().size() == 1);
    CHECK_FALSE(fs::is_symlink(path));
    CHECK(fs::exists(fixture.folder() / "elsewhere"));
    CHECK(cache.store(some_key(), some_entry()));
    CHECK(cache.load(some_key()) == some_entry());
}

TEST_CASE("a layer that is made to be shared can be read by all and written by its owner") {
    CacheFixture fixture;
    const mode_t mask = ::umask(0077);
    DiskCache maker({.directory = fixture.directory(), .readable_by_others = true}, {});
    const bool stored = maker.store(some_key(), some_entry(), "made for all");
    ::umask(mask);
    REQUIRE(stored);
    const fs::path path = maker.path_of(some_key());
    CHECK(permissions(path) == 0644);
    CHECK(permissions(path.parent_path()) == 0755);
    CHECK(permissions(fixture.directory()) == 0755);
    DiskCache reader({.directory = fixture.directory(), .read_only = true}, fixture.sink());
    CHECK(reader.load(some_key()) == some_entry());
}
