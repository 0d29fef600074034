#include "compiler/nvrtc_memo.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace backlight::compiler {

namespace {

/// What tells that a file is the same; null where it is not there.
nlohmann::json identity_of(const std::string& file) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) {
        return nullptr;
    }
    return {{"device", status.st_dev},
            {"inode", status.st_ino},
            {"bytes", status.st_size},
            {"changed_seconds", status.st_ctim.tv_sec},
            {"changed_nanoseconds", status.st_ctim.tv_nsec}};
}

/// The text of a memo of this user's; empty where there is none. Nothing in its place, such as a
/// pipe, is waited for.
std::string text_of(const std::filesystem::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (descriptor < 0) {
        return {};
    }
    constexpr std::size_t longest = std::size_t{1} << 16U;
    std::string text;
    struct stat status {};
    if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
        status.st_uid == ::geteuid()) {
        text.resize(longest);
        text.resize(static_cast<std::size_t>(
            std::max<ssize_t>(::read(descriptor, text.data(), text.size()), 0)));
    }
    ::close(descriptor);
    return text;
}

/// What decides, with the name itself, which file the loader opens for a name without a folder.
nlohmann::json loader_state() {
    const char* path = std::getenv("LD_LIBRARY_PATH");
    return {{"LD_LIBRARY_PATH", path != nullptr ? path : ""},
            {"ld.so.cache", identity_of("/etc/ld.so.cache")}};
}

}  // namespace

std::optional<std::string> NvrtcMemo::recall(const std::string& asked) const noexcept {
    try {
        const nlohmann::json memo = nlohmann::json::parse(text_of(file_), nullptr, false);
        if (!memo.is_object() || memo.at("asked") != asked || memo.at("loader") != loader_state()) {
            return std::nullopt;
        }
        const nlohmann::json identity = identity_of(memo.at("library").get<std::string>());
        if (identity.is_null() || memo.at("identity") != identity) {
            return std::nullopt;
        }
        return memo.at("version").get<std::string>();
    } catch (const std::exception&) {
        // Another program's file, or a damaged one.
        return std::nullopt;
    }
}

void NvrtcMemo::keep(const std::string& asked, const std::filesystem::path& library,
                     const std::string& version) const noexcept {
    try {
        const nlohmann::json identity = identity_of(library.string());
        if (file_.empty() || identity.is_null() || recall(asked) == version) {
            return;
        }
        const nlohmann::json memo = {{"asked", asked},
                                     {"loader", loader_state()},
                                     {"library", library.string()},
                                     {"identity", identity},
                                     {"version", version}};
        // A reader finds the one before or this one, and never a part. The name of the temporary
        // cannot be foreseen: where all may write, a link that another has put there would be
        // followed.
        const std::string text = memo.dump();
        std::string temporary = file_.string() + ".XXXXXX";
        const int descriptor = ::mkostemp(temporary.data(), O_CLOEXEC);
        if (descriptor < 0) {
            return;
        }
        const bool written =
            ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
        if (::close(descriptor) != 0 || !written ||
            ::rename(temporary.c_str(), file_.c_str()) != 0) {
            ::unlink(temporary.c_str());
        }
    } catch (const std::exception&) {
        // The next process asks NVRTC again.
    }
}

}  // namespace backlight::compiler
