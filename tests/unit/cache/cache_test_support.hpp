#pragma once

// What the tests of the cache share. Of the project, they include the cache alone, which so stays
// free of the rest.

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "backlight/cache/disk_cache.hpp"
#include "backlight/cache/entry.hpp"
#include "backlight/cache/key.hpp"
#include "temporary_directory.hpp"

namespace backlight::cache_test {

namespace fs = std::filesystem;

/// A file system in memory where there is one: for tests of many stores, as a disk takes its time
/// to have each written.
inline fs::path memory_directory() {
    return ::access("/dev/shm", W_OK | X_OK) == 0 ? fs::path("/dev/shm")
                                                  : fs::temp_directory_path();
}

/// A folder for the life of a test, with a cache in a part of it that does not exist yet.
class CacheFixture {
  public:
    explicit CacheFixture(const fs::path& parent = fs::temp_directory_path()) : folder_(parent) {}

    const fs::path& folder() const { return folder_.path(); }
    fs::path directory() const { return folder() / "made" / "cache"; }

    backlight::cache::WarningSink sink() {
        return [this](std::string_view text) {
            const std::lock_guard lock(mutex_);
            warnings_.emplace_back(text);
        };
    }
    /// What was warned about since the last call.
    std::vector<std::string> warnings() {
        const std::lock_guard lock(mutex_);
        return std::exchange(warnings_, {});
    }

  private:
    test::TemporaryDirectory folder_;
    std::mutex mutex_;
    std::vector<std::string> warnings_;
};

inline std::vector<std::byte> bytes_of(std::string_view text) {
    std::vector<std::byte> bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    return bytes;
}

inline backlight::cache::Key some_key(std::string_view value = "v3") {
    backlight::cache::Key key;
    key.add("kernel", value).add("target", "sm_90a");
    return key;
}

inline backlight::cache::Entry some_entry(std::string_view payload = "cubin") {
    return {.metadata = "registers 128", .payload = bytes_of(payload)};
}

inline std::string read_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    REQUIRE(file.good());
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const fs::path& path, std::string_view bytes) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    REQUIRE(file.good());
}

inline std::size_t regular_files(const fs::path& directory) {
    return static_cast<std::size_t>(
        std::count_if(fs::recursive_directory_iterator(directory), {},
                      [](const fs::directory_entry& entry) { return entry.is_regular_file(); }));
}

inline bool contains(const std::string& text, std::string_view fragment) {
    return text.find(fragment) != std::string::npos;
}

inline mode_t permissions(const fs::path& path) {
    struct stat status {};
    REQUIRE(::stat(path.c_str(), &status) == 0);
    return status.st_mode & 0777U;
}

/// Makes the file look as if it was last changed so long ago.
inline void make_older(const fs::path& path, std::chrono::seconds age) {
    fs::last_write_time(path, fs::file_time_type::clock::now() - age);
}

/// No file of this process may grow beyond so many bytes, for the life of the object.
class FileSizeLimit {
  public:
    explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
        REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
        const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    }
    ~FileSizeLimit() {
        ::setrlimit(RLIMIT_FSIZE, &before_);
        std::signal(SIGXFSZ, handler_);
    }
    FileSizeLimit(const FileSizeLimit&) = delete;
    FileSizeLimit& operator=(const FileSizeLimit&) = delete;

  private:
    void (*handler_)(int);
    rlimit before_{};
};

/// Runs `body` in a process of its own, without the rights of root, and gives what it returns. No
/// assertions in it. `folder` and what is in it are given to that user.
template <typename Body>
int as_ordinary_user(const fs::path& folder, Body&& body) {
    constexpr uid_t ordinary = 65534;
    if (::geteuid() == 0) {
        REQUIRE(::lchown(folder.c_str(), ordinary, ordinary) == 0);
        for (const auto& item : fs::recursive_directory_iterator(folder)) {
            REQUIRE(::lchown(item.path().c_str(), ordinary, ordinary) == 0);
        }
    }
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const bool root = ::geteuid() == 0;
        if (root && (::setgid(ordinary) != 0 || ::setuid(ordinary) != 0)) {
            ::_exit(99);
        }
        ::_exit(body());
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

}  // namespace backlight::cache_test
