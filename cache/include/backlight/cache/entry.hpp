#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace backlight::cache {

/// What a key stands for. The file that holds an entry is a function of its key and of these two
/// alone: whoever makes the same entry writes the same bytes. So the metadata must be reproducible;
/// what differs from one compilation to the next (when, how long, by which program) goes into the
/// provenance that `DiskCache::store` takes, which is kept in a file beside the entry.
struct Entry {
    /// Small text that the cache keeps beside the payload and does not read.
    std::string metadata;
    std::vector<std::byte> payload;

    bool operator==(const Entry&) const = default;
};

/// Is told what went wrong, each problem once, from any thread that uses the cache. What it throws
/// is dropped.
using WarningSink = std::function<void(std::string_view)>;

/// No larger entry is stored or read: a broken length must not ask for all memory.
inline constexpr std::size_t largest_entry_bytes = std::size_t{1} << 28U;

}  // namespace backlight::cache
