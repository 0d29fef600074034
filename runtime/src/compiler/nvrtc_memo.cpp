#include "compiler/nvrtc_memo.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>

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

/// What decides, with the name itself, which file the loader opens for a name without a folder.
nlohmann::json loader_state() {
    const char* path = std::getenv("LD_LIBRARY_PATH");
    return {{"LD_LIBRARY_PATH", path != nullptr ? path : ""},
            {"ld.so.cache", identity_of("/etc/ld.so.cache")}};
}

}  // namespace

std::optional<std::string> NvrtcMemo::recall(const std::string& asked) const noexcept {
    try {
        std::ifstream stream(file_, std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(stream), {}};
        const nlohmann::json memo = nlohmann::json::parse(text, nullptr, false);
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
        // A reader finds the one before or this one, and never a part.
        std::filesystem::path temporary = file_;
        temporary += "." + std::to_string(::getpid());
        std::ofstream stream(temporary, std::ios::binary);
        stream << memo.dump();
        stream.close();
        std::error_code failure;
        if (stream) {
            std::filesystem::rename(temporary, file_, failure);
        }
        if (!stream || failure) {
            std::filesystem::remove(temporary, failure);
        }
    } catch (const std::exception&) {
        // The next process asks NVRTC again.
    }
}

}  // namespace backlight::compiler
