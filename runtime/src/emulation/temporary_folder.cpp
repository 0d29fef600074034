#include "emulation/temporary_folder.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <system_error>

#include "backlight/error.hpp"

namespace backlight::emulation {

TemporaryFolder::TemporaryFolder() {
    std::error_code failure;
    std::filesystem::path parent = std::filesystem::temp_directory_path(failure);
    std::string pattern = (parent / "backlight-emulated-XXXXXX").string();
    if (failure || ::mkdtemp(pattern.data()) == nullptr) {
        throw Error(
            ErrorCode::file_error,
            fmt::format("no temporary folder could be made as {}: TMPDIR must name a folder "
                        "that can be written to",
                        pattern));
    }
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace backlight::emulation
