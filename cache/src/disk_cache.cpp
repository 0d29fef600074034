#include "backlight/cache/disk_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <exception>
#include <system_error>
#include <utility>

#include "entry_format.hpp"

namespace backlight::cache {

namespace {

/// The failure of the last POSIX call, as an exception that stays within this file.
std::system_error failure(const std::string& what) {
    return {errno, std::generic_category(), what};
}

/// An open file descriptor.
class File {
  public:
    File(const std::filesystem::path& path, int flags, mode_t mode = 0)
        : descriptor_(::open(path.c_str(), flags | O_CLOEXEC, mode)) {}
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
            const ssize_t count = ::read(descriptor_, chunk.data(), chunk.size());
            if (count < 0 && errno == EINTR) {
                continue;
            }
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
            const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
            if (count < 0 && errno == EINTR) {
                continue;
            }
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
        if (::fsync(descriptor_) != 0) {
            throw failure("flush");
        }
    }

    /// Closes with the errors that a network file system may keep until then.
    void close() {
        if (::close(std::exchange(descriptor_, -1)) != 0) {
            throw failure("close");
        }
    }

  private:
    int descriptor_;
};

/// A name that no other thread or process uses at the same time.
std::string temporary_suffix() {
    static std::atomic<unsigned> counter = 0;
    return ".temporary." + std::to_string(::getpid()) + "." + std::to_string(counter++);
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
    const std::filesystem::path temporary = path.string() + temporary_suffix();
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600);
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
        const File file(path, O_RDONLY);
        if (!file.opened()) {
            if (errno != ENOENT && errno != ENOTDIR) {
                throw failure("open");
            }
            return std::nullopt;
        }
        std::string reason;
        std::optional<Entry> entry = decode_entry(file.read_all(), key.text(), reason);
        if (!entry) {
            warn_once(path.string(), "cache entry " + path.string() +
                                         " is not used and will be replaced: " + reason);
            // Another process may have replaced it meanwhile.
            if (file.is_at(path)) {
                ::unlink(path.c_str());
            }
        }
        return entry;
    } catch (const std::exception& error) {
        warn_once("load", "the cache at " + directory_.string() +
                              " cannot be read, and kernels are compiled anew: " + error.what());
        return std::nullopt;
    }
}

bool DiskCache::store(const Key& key, const Entry& entry) noexcept {
    try {
        publish(path_of(key), encode_entry(key.text(), entry));
        return true;
    } catch (const std::exception& error) {
        warn_once("store",
                  "the cache at " + directory_.string() +
                      " cannot be written, and kernels are kept in memory only: " + error.what());
        return false;
    }
}

void DiskCache::warn_once(const std::string& subject, const std::string& text) noexcept {
    try {
        {
            const std::lock_guard lock(warned_mutex_);
            if (!warned_.insert(subject).second) {
                return;
            }
        }
        if (warn_) {
            warn_(text);
        }
    } catch (const std::exception&) {
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
