#include "file.hpp"

#include <dirent.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

namespace backlight::cache {

namespace {

std::atomic<FaultInjector> injected_faults = nullptr;

/// Whether that call is to fail; sets `errno` then.
bool injected(SystemCall call) noexcept {
    const FaultInjector injector = injected_faults.load(std::memory_order_relaxed);
    const int error = injector == nullptr ? 0 : injector(call);
    if (error != 0) {
        errno = error;
    }
    return error != 0;
}

/// The result of a call, made again for as long as signals interrupt it.
template <typename Call>
auto system_call(SystemCall kind, Call&& call) -> decltype(call()) {
    if (injected(kind)) {
        return -1;
    }
    for (;;) {
        const auto result = call();
        if (result >= 0 || errno != EINTR) {
            return result;
        }
    }
}

FileStatus to_status(const struct stat& status) {
    return {.device = status.st_dev,
            .number = status.st_ino,
            .mode = status.st_mode,
            .owner = status.st_uid,
            .group = status.st_gid,
            .bytes = static_cast<std::uint64_t>(status.st_size),
            .modified = TimePoint(std::chrono::duration_cast<TimePoint::duration>(
                std::chrono::seconds(status.st_mtim.tv_sec) +
                std::chrono::nanoseconds(status.st_mtim.tv_nsec)))};
}

}  // namespace

void inject_faults(FaultInjector injector) noexcept {
    injected_faults = injector;
}

std::system_error failure(const char* what) {
    return {errno, std::generic_category(), what};
}

std::optional<FileStatus> status_of(const std::filesystem::path& path, Links links) {
    struct stat status {};
    const int result = system_call(SystemCall::status, [&] {
        return links == Links::follow ? ::stat(path.c_str(), &status)
                                      : ::lstat(path.c_str(), &status);
    });
    if (result != 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return std::nullopt;
        }
        throw failure("look at a file");
    }
    return to_status(status);
}

File::~File() {
    if (opened()) {
        ::close(descriptor_);
    }
}

File::File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

File File::open(const std::filesystem::path& path, int flags, mode_t mode) {
    // Without O_NONBLOCK a pipe in a file's place would be waited for.
    return File(system_call(SystemCall::open, [&] {
        return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode);
    }));
}

File File::open_temporary(const std::filesystem::path& path, std::string& name) {
    // The name is random rather than made of the process id: ids recur, above all in containers,
    // and a killed process leaves its temporary behind.
    return File(system_call(SystemCall::open, [&] {
        name = path.native() + ".temporary.XXXXXX";
        return ::mkostemp(name.data(), O_CLOEXEC);  // opens with O_CREAT | O_EXCL
    }));
}

FileStatus File::status() const {
    struct stat status {};
    if (system_call(SystemCall::status, [&] { return ::fstat(descriptor_, &status); }) != 0) {
        throw failure("look at an open file");
    }
    return to_status(status);
}

std::string File::read(std::uint64_t position, std::size_t count) const {
    std::string bytes(count, '\0');
    std::size_t done = 0;
    while (done < count) {
        const ssize_t now = system_call(SystemCall::read, [&] {
            return ::pread(descriptor_, bytes.data() + done, count - done,
                           static_cast<off_t>(position + done));
        });
        if (now < 0) {
            throw failure("read");
        }
        if (now == 0) {
            break;
        }
        done += static_cast<std::size_t>(now);
    }
    bytes.resize(done);
    return bytes;
}

void File::write(std::string_view bytes) const {
    while (!bytes.empty()) {
        const ssize_t count = system_call(
            SystemCall::write, [&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
        if (count < 0) {
            throw failure("write");
        }
        bytes.remove_prefix(static_cast<std::size_t>(count));
    }
}

void File::set_mode(mode_t mode) const {
    if (system_call(SystemCall::touch, [&] { return ::fchmod(descriptor_, mode); }) != 0) {
        throw failure("set the mode");
    }
}

void File::synchronise() const {
    if (system_call(SystemCall::synchronise, [&] { return ::fsync(descriptor_); }) != 0) {
        throw failure("flush");
    }
}

bool File::touch() const noexcept {
    return system_call(SystemCall::touch, [&] { return ::futimens(descriptor_, nullptr); }) == 0;
}

bool File::is_at(const std::filesystem::path& path) const {
    const auto there = status_of(path, Links::keep);
    return there && there->is_same_file(status());
}

std::optional<bool> File::try_lock() const noexcept {
    if (system_call(SystemCall::lock, [&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) ==
        0) {
        return true;
    }
    return errno == EWOULDBLOCK ? std::optional<bool>(false) : std::nullopt;
}

void File::unlock() const noexcept {
    // A child that was forked meanwhile shares the lock; this frees it for the child too, which
    // closing alone would not.
    ::flock(descriptor_, LOCK_UN);
}

void File::close() {
    // An interrupted close has closed on Linux, and must not be repeated.
    const int result = ::close(std::exchange(descriptor_, -1));
    if (injected(SystemCall::close) || (result != 0 && errno != EINTR)) {
        throw failure("close");
    }
}

bool remove_file(const std::filesystem::path& path) noexcept {
    return system_call(SystemCall::remove, [&] { return ::unlink(path.c_str()); }) == 0;
}

std::vector<std::string> names_in(const std::filesystem::path& directory) {
    struct CloseDirectory {
        void operator()(DIR* stream) const noexcept { ::closedir(stream); }
    };
    const std::unique_ptr<DIR, CloseDirectory> stream(
        injected(SystemCall::list) ? nullptr : ::opendir(directory.c_str()));
    if (stream == nullptr) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return {};
        }
        throw failure("list a directory");
    }
    std::vector<std::string> names;
    for (;;) {
        errno = 0;
        // Of one stream, used by one thread.
        const dirent* const item = ::readdir(stream.get());  // NOLINT(concurrency-mt-unsafe)
        if (item == nullptr) {
            break;
        }
        const std::string_view name = item->d_name;
        if (name != "." && name != "..") {
            names.emplace_back(name);
        }
    }
    if (errno != 0) {
        throw failure("list a directory");
    }
    std::sort(names.begin(), names.end());
    return names;
}

void make_directories(const std::filesystem::path& directory, bool readable_by_others) {
    if (!directory.has_relative_path()) {
        return;  // The root, or where the process is.
    }
    if (const auto there = status_of(directory, Links::follow); there && there->is_directory()) {
        return;
    }
    make_directories(directory.parent_path(), readable_by_others);
    const auto make = [&] { return ::mkdir(directory.c_str(), 0700); };
    if (system_call(SystemCall::make_directory, make) != 0) {
        if (errno != EEXIST) {
            throw failure("make the directory");
        }
        return;
    }
    // Apart from mkdir, as the process's file mode creation mask would count there.
    if (readable_by_others && ::chmod(directory.c_str(), 0755) != 0) {
        throw failure("set the mode of the directory");
    }
}

void publish(const std::filesystem::path& path, std::string_view bytes,
             const PublishOptions& options) {
    std::string temporary;
    File file = File::open_temporary(path, temporary);
    if (!file.opened()) {
        throw failure("create a temporary file");
    }
    try {
        if (options.readable_by_others) {
            file.set_mode(0644);
        }
        file.write(bytes);
        if (options.synchronise) {
            file.synchronise();
        }
        file.close();
        const auto rename = [&] { return ::rename(temporary.c_str(), path.c_str()); };
        if (system_call(SystemCall::rename, rename) != 0) {
            throw failure("rename the temporary file");
        }
        // The directory is not flushed: a name that a power cut takes away is a miss, and no more.
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
}

}  // namespace backlight::cache
