#include "backlight/cache/trust.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <deque>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "file.hpp"

namespace backlight::cache {

namespace {

/// As many as Linux follows.
constexpr int most_links = 40;

std::string contents_of(const char* path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

bool is_directory_use(TrustedAs use) {
    return use == TrustedAs::writable_directory || use == TrustedAs::read_only_directory;
}

/// Puts the components of a path in front of what is still to be walked.
void prepend(std::deque<std::filesystem::path>& pending, const std::filesystem::path& path) {
    const std::filesystem::path relative = path.relative_path();
    pending.insert(pending.begin(), relative.begin(), relative.end());
}

}  // namespace

Identity Identity::of_process() {
    static const std::optional<uid_t> root_alias = root_alias_from(
        contents_of("/proc/self/uid_map"), contents_of("/proc/sys/kernel/overflowuid"));
    return {.user = ::geteuid(), .root_alias = root_alias};
}

std::optional<uid_t> root_alias_from(std::string_view uid_map, std::string_view overflow_user) {
    std::istringstream lines{std::string(uid_map)};
    unsigned long long inside = 0;
    unsigned long long outside = 0;
    unsigned long long count = 0;
    bool mapped = false;
    while (lines >> inside >> outside >> count) {
        // Root of the outside has a number where a range reaches back to its zero.
        mapped = mapped || (outside == 0 && count > 0);
    }
    uid_t number = 0;
    const auto [end, failure] =
        std::from_chars(overflow_user.data(), overflow_user.data() + overflow_user.size(), number);
    if (uid_map.empty() || mapped || failure != std::errc() || end == overflow_user.data()) {
        return std::nullopt;
    }
    return number;
}

std::optional<std::string> reason_to_distrust(const Ownership& thing, TrustedAs use,
                                              const Identity& identity) {
    const bool own = thing.owner == identity.user;
    const bool roots = thing.owner == 0 || thing.owner == identity.root_alias;
    if (!own && (!roots || use == TrustedAs::writable_directory)) {
        return "belongs to user " + std::to_string(thing.owner) + ", not to user " +
               std::to_string(identity.user);
    }
    if (use == TrustedAs::link) {
        return std::nullopt;
    }
    if (use == TrustedAs::file ? !S_ISREG(thing.mode) : !S_ISDIR(thing.mode)) {
        return use == TrustedAs::file ? "is not a regular file" : "is not a directory";
    }
    if (use == TrustedAs::ancestor && (thing.mode & S_ISVTX) != 0) {
        return std::nullopt;
    }
    const bool own_group = own && thing.group == identity.user;
    if ((thing.mode & S_IWGRP) != 0 && !own_group) {
        return "can be written by its group: chmod g-w it, or use another";
    }
    if ((thing.mode & S_IWOTH) != 0) {
        return "can be written by every user: chmod o-w it, or use another";
    }
    return std::nullopt;
}

TrustVerdict judge_path(const std::filesystem::path& path, TrustedAs use,
                        const Identity& identity) {
    using Kind = TrustVerdict::Kind;
    const auto judge = [&](const std::filesystem::path& place, const FileStatus& status,
                           TrustedAs place_use) -> std::optional<TrustVerdict> {
        const Ownership ownership{
            .owner = status.owner, .group = status.group, .mode = status.mode};
        if (auto reason = reason_to_distrust(ownership, place_use, identity)) {
            return TrustVerdict{Kind::refused, place.native() + " " + *reason};
        }
        return std::nullopt;
    };

    std::deque<std::filesystem::path> pending;
    prepend(pending, std::filesystem::absolute(path));
    while (!pending.empty() && pending.back().empty()) {
        pending.pop_back();  // of a slash at the end
    }
    std::filesystem::path current = "/";
    for (int links = 0; !pending.empty();) {
        const std::filesystem::path name = pending.front();
        pending.pop_front();
        if (name == "." || name.empty()) {
            continue;
        }
        if (name == "..") {
            current = current.parent_path();
            continue;
        }
        // `current` is left by a name, so it counts as a way there.
        const auto ancestor = status_of(current, Links::keep);
        if (!ancestor || !ancestor->is_directory()) {
            return {Kind::absent};
        }
        if (auto refused = judge(current, *ancestor, TrustedAs::ancestor)) {
            return *refused;
        }
        const std::filesystem::path next = current / name;
        const auto status = status_of(next, Links::keep);
        if (!status) {
            return {Kind::absent};
        }
        if (!status->is_link()) {
            current = next;
            continue;
        }
        if (auto refused = judge(next, *status, TrustedAs::link)) {
            return *refused;
        }
        if (++links > most_links) {
            return {Kind::refused, next.native() + " is one symbolic link too many"};
        }
        const std::filesystem::path target = std::filesystem::read_symlink(next);
        if (target.is_absolute()) {
            current = "/";
        }
        prepend(pending, target);
    }
    const auto last = status_of(current, Links::keep);
    // Another kind of thing in a directory's place is for the system to refuse, in its own words.
    if (!last || (is_directory_use(use) && !last->is_directory())) {
        return {Kind::absent};
    }
    if (auto refused = judge(current, *last, use)) {
        return *refused;
    }
    return {Kind::trusted};
}

}  // namespace backlight::cache
