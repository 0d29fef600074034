#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "compiler/kernel_store.hpp"
#include "subcommand.hpp"

namespace backlight::tool {

/// Which cache a command is about.
struct CacheLocation {
    /// Empty: that of the environment.
    std::filesystem::path directory;
    /// Directories and packs looked in before those of the environment.
    std::vector<std::string> layers;

    void add_to(CLI::App& command);

    /// Throws `file_error` where nothing is at a path that the command line names, or no directory
    /// at that of `--cache`. What the environment names, and the default, may come to be later.
    void require_there() const;

    /// A store over that cache, with the environment's NVRTC and policy.
    compiler::KernelStoreOptions store_options() const;
};

}  // namespace backlight::tool
