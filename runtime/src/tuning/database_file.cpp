// Tuning databases on disk: read whole, replaced whole.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "backlight/cache/key_lock.hpp"
#include "backlight/error.hpp"
#include "logging.hpp"
#include "tuning/database.hpp"

namespace backlight::tuning {

namespace {

/// Far more than all cards and problems of one user take.
constexpr std::size_t most_bytes = std::size_t{256} << 20U;

/// With the system's text for `errno`.
Error failed(const std::filesystem::path& path, const char* what) {
    return {ErrorCode::file_error, fmt::format("tuning database '{}': {}: {}", path.string(), what,
                                               std::generic_category().message(errno))};
}

class Descriptor {
  public:
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0) {
            ::close(number_);
        }
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    int number() const noexcept { return number_; }
    bool opened() const noexcept { return number_ >= 0; }
    /// False where what was written may not have arrived.
    bool close() noexcept { return ::close(std::exchange(number_, -1)) == 0; }

  private:
    int number_;
};

/// The text of the file; nothing where there is none.
std::optional<std::string> read_file(const std::filesystem::path& path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.opened()) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return std::nullopt;
        }
        throw failed(path, "it cannot be opened");
    }
    struct stat status {};
    if (::fstat(file.number(), &status) != 0) {
        throw failed(path, "it cannot be read");
    }
    if (!S_ISREG(status.st_mode)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("tuning database '{}': it is no regular file", path.string()));
    }
    std::string text;
    char buffer[1 << 16];
    while (true) {
        const ssize_t count = ::read(file.number(), buffer, sizeof(buffer));
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            throw failed(path, "it cannot be read");
        }
        if (count == 0) {
            return text;
        }
        text.append(buffer, static_cast<std::size_t>(count));
        if (text.size() > most_bytes) {
            throw Error(ErrorCode::file_error,
                        fmt::format("tuning database '{}': it has more than {} bytes",
                                    path.string(), most_bytes));
        }
    }
}

bool write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count < 0) {
            return false;
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

void make_parent(const std::filesystem::path& path) {
    std::error_code failure;
    const std::filesystem::path parent = path.parent_path();
    if (!parent.empty() && !std::filesystem::create_directories(parent, failure) && failure) {
        throw Error(ErrorCode::file_error,
                    fmt::format("tuning database '{}': its directory cannot be made: {}",
                                path.string(), failure.message()));
    }
}

/// A link stays one: what it leads to is replaced. Not one of another user, such as lies in a
/// directory that all may write: it would have this user replace any file of their own.
std::filesystem::path resolved(const std::filesystem::path& path) {
    struct stat link {};
    if (::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode) && link.st_uid != 0 &&
        link.st_uid != ::geteuid()) {
        throw Error(ErrorCode::file_error,
                    fmt::format("tuning database '{}': it is a symbolic link of user {}, not of "
                                "user {} or root",
                                path.string(), link.st_uid, ::geteuid()));
    }
    std::error_code failure;
    const std::filesystem::path target = std::filesystem::canonical(path, failure);
    return failure ? path : target;
}

/// "<file>.broken", or with a number the first that is free: what was kept before stays.
std::string free_name_aside(const std::filesystem::path& path) {
    const std::string aside = path.string() + ".broken";
    std::string name = aside;
    struct stat status {};
    for (int number = 2; ::lstat(name.c_str(), &status) == 0; ++number) {
        name = fmt::format("{}.{}", aside, number);
    }
    return name;
}

/// What the file holds, for the sake of adding to it: one that is no database is put aside. What
/// cannot be read, or is another kind of thing than a file, is not known to be broken, and is left
/// alone; so is one of another version, which is of use to another build.
Database read_to_replace(const std::filesystem::path& path) {
    const auto text = read_file(path);
    try {
        return text ? from_json_text(*text, path.string()) : Database{};
    } catch (const OtherVersion&) {
        throw;
    } catch (const Error& error) {
        const std::string aside = free_name_aside(path);
        if (::rename(path.c_str(), aside.c_str()) != 0) {
            throw failed(path, "it is no database, and cannot be put aside");
        }
        logger().warn("{}; it is kept as {}", error.what(), aside);
        return {};
    }
}

}  // namespace

Database read_database(const std::filesystem::path& path) {
    const auto text = read_file(path);
    return text ? from_json_text(*text, path.string()) : Database{};
}

Database read_checked_records(const std::filesystem::path& path) {
    const auto text = read_file(path);
    return text ? checked_from_json_text(*text, path.string()) : Database{};
}

void write_database(const std::filesystem::path& given, const Database& database) {
    const std::filesystem::path path = resolved(given);
    make_parent(path);
    const std::string text = to_json_text(database);
    std::string temporary = path.string() + ".XXXXXX";
    Descriptor file(::mkostemp(temporary.data(), O_CLOEXEC));
    if (!file.opened()) {
        throw failed(path, "no temporary can be made beside it");
    }
    // As `open` would make it: the temporary is its owner's alone.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    constexpr mode_t for_all = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
    const bool written = write_all(file.number(), text) &&
                         ::fchmod(file.number(), for_all & ~mask) == 0 &&
                         ::fsync(file.number()) == 0 && file.close() &&
                         ::rename(temporary.c_str(), path.c_str()) == 0;
    if (!written) {
        const Error error = failed(path, "it cannot be written");
        ::unlink(temporary.c_str());
        throw error;
    }
    // The name, too, is to outlast a loss of power; where a directory cannot be synchronised, it
    // will be written sometime.
    const Descriptor directory(
        ::open(path.has_parent_path() ? path.parent_path().c_str() : ".", O_RDONLY | O_CLOEXEC));
    if (directory.opened()) {
        ::fsync(directory.number());
    }
}

Database add_to_file(const std::filesystem::path& given, const Database& additions,
                     Addition addition, std::chrono::milliseconds lock_timeout) {
    const std::filesystem::path path = resolved(given);
    make_parent(path);
    // Held by whoever reads the file in order to replace it. Where there are no locks, such as on
    // some network file systems, and where its holder has stopped, two tuners at once may lose each
    // other's records, and no more.
    const cache::KeyLock lock = cache::KeyLock::acquire(path.string() + ".lock", lock_timeout);
    if (lock.state() == cache::KeyLock::State::timed_out) {
        logger().warn(
            "tuning database '{}': another process has held its lock for too long: going "
            "on without it",
            path.string());
    }
    Database database = read_to_replace(path);
    addition == Addition::merged ? database.merge(additions) : database.put_all(additions);
    write_database(path, database);
    return database;
}

}  // namespace backlight::tuning
