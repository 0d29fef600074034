#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace backlight::cache {

// Whom the cache trusts.
//
// Entries hold machine code that is run as it is. Their checksums are XXH3, which tells damage but
// not intent: whoever may write an entry may write one that passes every check. So what protects an
// entry is who may write where it lies, and that is looked at before anything there is read or
// written:
//
// - The directory of a writable layer belongs to the user of the process. That of a read-only layer
//   may belong to root as well. Neither may be written by group or others. Directories that the
//   cache makes are 0700, and their files 0600.
// - Every directory on the way there, and every one that a symbolic link on the way leads through,
//   belongs to that user or to root, and is not written by group or others: else they could put
//   another directory in its place. One with the sticky bit, such as /tmp, may be written by all,
//   as nobody there can move what is another's. Symbolic links belong to that user or to root.
// - Where a group has the number of the user, it is taken for the user's own, as distributions make
//   them: then its right to write is the user's.
// - Entries and packs are regular files that belong to that user or to root and that neither group
//   nor others may write; an entry is never a link.
//
// The way to a directory is looked at again whenever the directory itself is another, or has
// another owner or mode. What is refused is neither read nor written, and the reason is told once.
// Not guarded against: root, other processes of the user, and whoever had a directory open before
// its mode was narrowed.

/// Who asks.
struct Identity {
    uid_t user = 0;
    /// In a user namespace where root of the outside has no number, files of root appear under this
    /// one, which then counts as root.
    std::optional<uid_t> root_alias = {};

    /// The user in force.
    static Identity of_process();
};

/// The number under which root's files appear, out of the texts of /proc/self/uid_map and
/// /proc/sys/kernel/overflowuid; nothing where root has its own.
std::optional<uid_t> root_alias_from(std::string_view uid_map, std::string_view overflow_user);

enum class TrustedAs {
    ancestor,
    link,
    /// The directory of a writable layer.
    writable_directory,
    read_only_directory,
    /// An entry or a pack.
    file
};

/// Owner and mode, as stat(2) gives them.
struct Ownership {
    uid_t owner = 0;
    gid_t group = 0;
    mode_t mode = 0;
};

/// What makes the thing unfit for that use, to follow its path in a sentence; nothing if it is fit.
std::optional<std::string> reason_to_distrust(const Ownership& thing, TrustedAs use,
                                              const Identity& identity);

struct TrustVerdict {
    enum class Kind { trusted, absent, refused };
    Kind kind = Kind::absent;
    /// Why it is refused, as a sentence with the path of what is wrong.
    std::string reason = {};
};

/// Goes the whole way to `path` and judges all of it. `use` is that of the last place. May throw
/// `std::system_error` where a place cannot be looked at.
TrustVerdict judge_path(const std::filesystem::path& path, TrustedAs use, const Identity& identity);

}  // namespace backlight::cache
