#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backlight/cache/entry.hpp"
#include "backlight/cache/key.hpp"

namespace backlight::cache {

/// An entry as a listing tells it.
struct StoredEntry {
    /// Of the entry's file, or of the pack that holds it.
    std::filesystem::path path;
    Key key;
    std::string metadata;
    std::uint64_t payload_bytes = 0;
    /// Of the whole entry.
    std::uint64_t bytes = 0;
    /// Exact to `DiskCacheOptions::stamp_interval`; nothing in a pack.
    std::optional<std::chrono::system_clock::time_point> last_used = {};
    /// As it was stored; empty where it is lost.
    std::string provenance = {};
};

struct BadEntry {
    std::filesystem::path path;
    /// What is wrong, as a sentence about "it".
    std::string reason;
    /// By the check that found it.
    bool removed = false;
};

struct Listing {
    /// In the order of their digests.
    std::vector<StoredEntry> entries;
    std::vector<BadEntry> bad;
    /// Why there is no listing, or only a part of one; empty otherwise.
    std::string problem;
};

enum class Check {
    /// Keys and metadata are read and checked.
    heads,
    /// Payloads too.
    everything
};

/// Where entries may be found. All may be called from many threads; none throws, whatever the disk
/// does.
class Layer {
  public:
    Layer() = default;
    Layer(const Layer&) = delete;
    Layer& operator=(const Layer&) = delete;
    virtual ~Layer() = default;

    /// The entry of that key, wholly checked.
    virtual std::optional<Entry> load(const Key& key) noexcept = 0;
    /// Whether `load` would find it. Changes and counts nothing.
    virtual bool holds(const Key& key) const noexcept = 0;
    virtual Listing list(Check check) const noexcept = 0;

    /// The path, or the name of a pack in memory.
    virtual std::filesystem::path location() const = 0;
    /// What it is, for a person: "directory", "pack", "pack in memory".
    virtual const char* kind() const noexcept = 0;
    /// Why nothing of it is used, as of the last look; empty where it is used or not there.
    virtual std::string refusal() const = 0;
    virtual std::uint64_t hits() const noexcept = 0;
};

}  // namespace backlight::cache
