#include "cache_location.hpp"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "backlight/error.hpp"
#include "runtime_implementation.hpp"

namespace backlight::tool {

void CacheLocation::add_to(CLI::App& command) {
    command.add_option("--cache", directory,
                       "Directory [BACKLIGHT_CACHE_PATH, else ~/.cache/backlight]");
    command.add_option("--layer", layers,
                       "Directory or pack that is looked in first, may be repeated; those of "
                       "BACKLIGHT_CACHE_LAYERS follow");
}

void CacheLocation::require_there() const {
    // What is there and cannot be looked at is told by the cache, with the reason.
    const auto is_missing = [](const std::filesystem::path& path) {
        std::error_code ignored;
        return std::filesystem::status(path, ignored).type() ==
               std::filesystem::file_type::not_found;
    };
    std::error_code unknown;
    if (!directory.empty() && is_missing(directory)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("cache is '{}': nothing is there, and it must be a directory with "
                                "entries, as `backlight prebuild --cache` makes one",
                                directory.string()));
    }
    if (!directory.empty() && std::filesystem::is_regular_file(directory, unknown)) {
        throw Error(ErrorCode::file_error,
                    fmt::format("cache is '{}': it is a file, and must be a directory with "
                                "entries; a pack is named by --layer",
                                directory.string()));
    }
    for (const std::string& layer : layers) {
        if (is_missing(layer)) {
            throw Error(ErrorCode::file_error,
                        fmt::format("layer is '{}': nothing is there, and it must be a directory "
                                    "with entries or a pack, as `backlight prebuild --pack` makes "
                                    "one",
                                    layer));
        }
    }
}

compiler::KernelStoreOptions CacheLocation::store_options() const {
    RuntimeOptions options;
    options.cache_directory = directory;
    for (const std::string& layer : layers) {
        options.cache_layers.push_back({.path = layer});
    }
    return backlight::store_options(with_environment(std::move(options)));
}

}  // namespace backlight::tool
