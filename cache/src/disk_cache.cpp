#include "backlight/cache/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <exception>
#include <system_error>
#include <utility>

#include "entry_format.hpp"

namespace backlight::cache {

namespace {

/// The failure of the last POSIX call, as an exception that stays within this file.
std::system_error failure(const char* what) {
    return {errno, std::generic_category(), what};
}

/// The result of a POSIX call, made again for as long as signals interrupt it.
template <typename Call>
auto uninterrupted(Call&& call) {
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) {
            return result;
        }
    }
}

/// An open file descriptor, or none.
class File {
  public:
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File() {
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    bool opened() const noexcept { return descriptor_ >= 0; }

    std::string read_all() const {
        std::string bytes;
        std::string chunk(std::size_t{1} << 16U, '\0');
        for (;;) {
            const ssize_t count =
                uninterrupted([&] { return ::read(descriptor_, chunk.data(), chunk.size()); });
            if (count < 0) {
                throw failure("read");
            }
            if (count == 0) {
                return bytes;
            }
            bytes.append(chunk, 0, static_cast<std::size_t>(count));
        }
    }

    void write_all(std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t count =
                uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
            if (count < 0) {
                throw failure("write");
            }
            bytes.remove_prefix(static_cast<std::size_t>(count));
        }
    }

    /// Whether the open file is still what lies at `path`.
    bool is_at(const std::filesystem::path& path) const {
        struct stat own {};
        struct stat there {};
        return ::fstat(descriptor_, &own) == 0 && ::lstat(path.c_str(), &there) == 0 &&
               own.st_dev == there.st_dev && own.st_ino == there.st_ino;
    }

    void flush() const {
        if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) {
            throw failure("flush");
        }
    }

    /// Closes with the errors that a network file system may keep until then. An interrupted close
    /// has closed on Linux, and must not be repeated.
    void close() {
        if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) {
            throw failure("close");
        }
    }

  private:
    int descriptor_;
};

int open_to_read(const std::filesystem::path& path) {
    // Without O_NONBLOCK a pipe in a file's place would be waited for.
    return uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
}

/// Makes a file of its own, 0600, beside `path`, and tells its name. The name is random rather than
/// made of the process id: ids recur, above all in containers, and a killed process leaves its
/// temporary behind.
int open_temporary(const std::filesystem::path& path, std::string& name) {
    return uninterrupted([&] {
        name = path.native() + ".temporary.XXXXXX";
        return ::mkostemp(name.data(), O_CLOEXEC);  // opens with O_CREAT | O_EXCL
    });
}

/// Makes the directories that are missing, for their owner alone.
void make_private_directories(const std::filesystem::path& directory) {
    if (directory.empty() || std::filesystem::is_directory(directory)) {
        return;
    }
    make_private_directories(directory.parent_path());
    if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
        throw failure("make the directory");
    }
}

void publish(const std::filesystem::path& path, std::string_view bytes) {
    make_private_directories(path.parent_path());
    std::string temporary;
    File file(open_temporary(path, temporary));
    if (!file.opened()) {
        throw failure("create a temporary file");
    }
    try {
        file.write_all(bytes);
        file.flush();
        file.close();
        if (::rename(temporary.c_str(), path.c_str()) != 0) {
            throw failure("rename the temporary file");
        }
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
}

}  // namespace

DiskCache::DiskCache(std::filesystem::path directory, WarningSink warn)
    : directory_(std::move(directory)), warn_(std::move(warn)) {}

std::filesystem::path DiskCache::path_of(const Key& key) const {
    const std::string digest = key.digest();
    // Two levels, so that no directory grows too large for tools that list it.
    return directory_ / digest.substr(0, 2) / (digest.substr(2) + ".entry");
}

std::optional<Entry> DiskCache::load(const Key& key) noexcept {
    try {
        const std::filesystem::path path = path_of(key);
        const File file(open_to_read(path));
        if (!file.opened()) {
            if (errno != ENOENT && errno != ENOTDIR) {
                throw failure("open");
            }
            return std::nullopt;
        }
        std::string reason;
        std::optional<Entry> entry = decode_entry(file.read_all(), key.text(), reason);
        if (!entry) {
            warn_once(
                {"cache entry ", path.native(), " is not used and will be replaced: ", reason});
            // Another process may have replaced it meanwhile.
            if (file.is_at(path)) {
                ::unlink(path.c_str());
            }
        }
        return entry;
    } catch (const std::exception& error) {
        warn_once({"the cache at ", directory_.native(),
                   " cannot be read, and kernels are compiled anew: ", error.what()});
        return std::nullopt;
    }
}

bool DiskCache::store(const Key& key, const Entry& entry) noexcept {
    try {
        publish(path_of(key), encode_entry(key.text(), entry));
        return true;
    } catch (const std::exception& error) {
        warn_once({"the cache at ", directory_.native(),
                   " cannot be written, and kernels are kept in memory only: ", error.what()});
        return false;
    }
}

void DiskCache::warn_once(std::initializer_list<std::string_view> parts) noexcept {
    try {
        std::string text;
        for (const std::string_view part : parts) {
            text += part;
        }
        {
            const std::lock_guard lock(warned_mutex_);
            if (!warned_.insert(text).second) {
                return;
            }
        }
        if (warn_) {
            warn_(text);
        }
    } catch (...) {
        // A warning that cannot be given must not turn a miss into a failure.
        return;
    }
}

std::filesystem::path default_directory(const char* cache_path, const char* xdg_cache_home,
                                        const char* home) {
    const auto given = [](const char* value) { return value != nullptr && *value != '\0'; };
    if (given(cache_path)) {
        return cache_path;
    }
    // A relative XDG path is to be ignored (XDG Base Directory Specification).
    if (given(xdg_cache_home) && std::filesystem::path(xdg_cache_home).is_absolute()) {
        return std::filesystem::path(xdg_cache_home) / "backlight";
    }
    if (given(home) && std::filesystem::path(home).is_absolute()) {
        return std::filesystem::path(home) / ".cache" / "backlight";
    }
    return {};
}

}  // namespace backlight::cache
