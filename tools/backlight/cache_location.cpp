#include "cache_location.hpp"

#include <utility>

#include "runtime_implementation.hpp"

namespace backlight::tool {

void CacheLocation::add_to(CLI::App& command) {
    command.add_option("--cache", directory,
                       "Directory [BACKLIGHT_CACHE_PATH, else ~/.cache/backlight]");
    command.add_option("--layer", layers,
                       "Directory or pack that is looked in first, may be repeated; those of "
                       "BACKLIGHT_CACHE_LAYERS follow");
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
