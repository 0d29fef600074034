#include "output_file.hpp"

#include <filesystem>
#include <fstream>

namespace backlight::tool {

bool can_be_written(const std::string& file) {
    std::error_code failure;
    // Of a link itself: one that leads nowhere is not ours to remove.
    const bool is_new = std::filesystem::symlink_status(file, failure).type() ==
                        std::filesystem::file_type::not_found;
    const bool opened = std::ofstream(file, std::ios::app).is_open();
    if (is_new && opened) {
        std::filesystem::remove(file, failure);
    }
    return opened;
}

}  // namespace backlight::tool
