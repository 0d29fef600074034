#pragma once

#include <ostream>
#include <string>

#include "backlight/cache/disk_cache.hpp"
#include "cache_location.hpp"

namespace backlight::tool {

/// The layers: where they are, whether they are used, what they hold. `json` is a file, "-" or
/// empty, here as below.
void show_cache(const CacheLocation& location, const std::string& json, std::ostream& out);

struct ListOptions {
    /// Part of the name of an entry point or a source.
    std::string kernel;
    std::string target;
    std::string json;
    /// Whole digests, paths, constants, bytes and dates, however wide that is.
    bool whole = false;
};

/// The entries of all layers, in lines that a terminal is wide enough for unless they are to be
/// `whole`.
void list_cache(const CacheLocation& location, const ListOptions& options, std::ostream& out);

/// Reads and checks every entry of every layer; with `remove_bad`, bad ones of the writable layer
/// are removed. Failure where one is bad, or could not be looked at.
int verify_cache(const CacheLocation& location, bool remove_bad, std::ostream& out);

/// Of the writable layer. Failure where it was not done.
int prune_cache(const CacheLocation& location, const cache::PruneOptions& options,
                std::ostream& out);

}  // namespace backlight::tool
