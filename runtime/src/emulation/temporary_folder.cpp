#include "emulation/temporary_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include "backlight/error.hpp"

namespace backlight::emulation {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "backlight-emulated-";

int open_folder(const fs::path& path) noexcept {
    // Not for the compilers that are started: the lock is the open folder's, and ends with its last
    // descriptor.
    return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/// Whether the path still leads to the open folder, and this user owns it.
bool is_own(int descriptor, const fs::path& path) noexcept {
    struct stat open {};
    struct stat named {};
    return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino && open.st_uid == ::geteuid();
}

enum class Locked { yes, by_another, unsupported };

Locked lock(int descriptor) noexcept {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
        return Locked::yes;
    }
    return errno == EWOULDBLOCK ? Locked::by_another : Locked::unsupported;
}

/// Whether the folder is there and stays: another process may take one for left behind before its
/// maker has locked it. Where the file system knows no locks, none can be taken for left behind.
bool claim(int descriptor, const fs::path& path) noexcept {
    return descriptor >= 0 && lock(descriptor) != Locked::by_another && is_own(descriptor, path);
}

bool remove_if_left(const fs::path& path) {
    const int descriptor = open_folder(path);
    if (descriptor < 0) {
        return false;
    }
    // Nothing is removed but under the lock, so that who has it keeps the folder.
    const bool left =
        is_own(descriptor, path) && lock(descriptor) == Locked::yes && is_own(descriptor, path);
    std::error_code failure;
    if (left) {
        fs::remove_all(path, failure);
    }
    ::close(descriptor);
    return left && !failure;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
    std::error_code failure;
    const fs::path parent = fs::temp_directory_path(failure);
    if (!failure) {
        remove_left_folders(parent);
    }
    const std::string pattern = (parent / fmt::format("{}XXXXXX", prefix)).string();
    constexpr int most_attempts = 100;
    for (int attempt = 0; attempt < most_attempts && !failure; ++attempt) {
        std::string name = pattern;
        if (::mkdtemp(name.data()) == nullptr) {
            break;
        }
        descriptor_ = open_folder(name);
        if (claim(descriptor_, name)) {
            path_ = name;
            return;
        }
        if (descriptor_ >= 0) {
            ::close(descriptor_);
        }
        ::rmdir(name.c_str());
    }
    throw Error(ErrorCode::file_error,
                fmt::format("no temporary folder could be made as {}: TMPDIR must name a folder "
                            "that can be written to",
                            pattern));
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    ::close(descriptor_);
}

std::size_t remove_left_folders(const fs::path& parent) noexcept {
    std::size_t removed = 0;
    try {
        for (const fs::directory_entry& entry : fs::directory_iterator(parent)) {
            if (entry.path().filename().string().starts_with(prefix)) {
                removed += remove_if_left(entry.path()) ? 1 : 0;
            }
        }
    } catch (const std::exception&) {
        // A folder that cannot be read: what is left there stays.
    }
    return removed;
}

}  // namespace backlight::emulation
