#include <filesystem>

#include "backlight/cache/disk_cache.hpp"

namespace backlight::cache {

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
