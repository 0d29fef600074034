#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "backlight/cache/fault_injection.hpp"

namespace backlight::cache {

// The one file of the cache that talks to the system. What fails throws `std::system_error`, which
// no public function lets out.

using TimePoint = std::chrono::system_clock::time_point;

/// The failure of the last system call. `what` names no path: a problem is told once, not once for
/// each entry.
std::system_error failure(const char* what);

/// What the system knows of a file.
struct FileStatus {
    dev_t device = 0;
    ino_t number = 0;
    mode_t mode = 0;
    uid_t owner = 0;
    gid_t group = 0;
    std::uint64_t bytes = 0;
    TimePoint modified;

    bool is_directory() const noexcept { return S_ISDIR(mode); }
    bool is_regular() const noexcept { return S_ISREG(mode); }
    bool is_link() const noexcept { return S_ISLNK(mode); }
    bool is_same_file(const FileStatus& other) const noexcept {
        return device == other.device && number == other.number;
    }
    bool operator==(const FileStatus&) const = default;
};

enum class Links { follow, keep };

/// Nothing where there is no such file.
std::optional<FileStatus> status_of(const std::filesystem::path& path, Links links);

/// An open file, or none.
class File {
  public:
    File() = default;
    /// Takes over a descriptor; a negative one stands for none.
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File();
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;

    /// None, with `errno`, where that fails. `flags` are those of open(2); links are not followed
    /// in the last place, and nothing is waited for.
    static File open(const std::filesystem::path& path, int flags, mode_t mode = 0);
    /// A new file beside `path`, 0600, that no other process can have, and its path.
    static File open_temporary(const std::filesystem::path& path, std::string& name);

    bool opened() const noexcept { return descriptor_ >= 0; }
    FileStatus status() const;
    /// As many bytes from there as the file has, at most `count`.
    std::string read(std::uint64_t position, std::size_t count) const;
    void write(std::string_view bytes) const;
    void set_mode(mode_t mode) const;
    /// To the disk.
    void synchronise() const;
    /// Sets the time of the last change to now; false where that is not allowed.
    bool touch() const noexcept;
    /// Whether the open file is still what lies at `path`.
    bool is_at(const std::filesystem::path& path) const;
    /// Takes the advisory lock of the whole file if it is free; nothing where locks fail.
    std::optional<bool> try_lock() const noexcept;
    void unlock() const noexcept;
    /// Closes with the errors that a network file system may keep until then.
    void close();

  private:
    int descriptor_ = -1;
};

/// False, with `errno`, where that fails.
bool remove_file(const std::filesystem::path& path) noexcept;

/// The names in a directory, sorted; empty where it does not exist.
std::vector<std::string> names_in(const std::filesystem::path& directory);

/// Makes the directories that are missing: for their owner alone, or readable by all.
void make_directories(const std::filesystem::path& directory, bool readable_by_others);

struct PublishOptions {
    bool readable_by_others = false;
    /// To the disk before it takes its place.
    bool synchronise = true;
};

/// Writes a file beside `path` and renames it there, so that a reader finds the old file, the new
/// one, or none, and never a part. The directory must exist.
void publish(const std::filesystem::path& path, std::string_view bytes,
             const PublishOptions& options);

}  // namespace backlight::cache
