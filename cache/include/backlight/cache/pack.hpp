#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backlight/cache/entry.hpp"
#include "backlight/cache/key.hpp"
#include "backlight/cache/layer.hpp"

namespace backlight::cache {

class Warnings;

struct PackedEntry {
    Key key;
    Entry entry;
};

/// The bytes of a pack: a function of the set of entries, whatever their order. Null where two
/// entries of one key differ; `reason` then says so.
std::optional<std::string> encode_pack(std::span<const PackedEntry> entries, std::string& reason);

/// Writes a pack, readable by all, in place of what lay there; false with a reason where that
/// fails.
bool write_pack(const std::filesystem::path& path, std::span<const PackedEntry> entries,
                std::string& reason) noexcept;

/// One file, or a stretch of memory, with many entries: a layer to ship. The index is read once;
/// an entry is read and checked when it is asked for. A pack that is damaged, or not to be trusted,
/// holds nothing; a damaged entry is a miss; either is told once.
class Pack : public Layer {
  public:
    /// The file stays open, so that one put in its place later is not mixed up with it.
    Pack(const std::filesystem::path& path, WarningSink warn);
    /// The bytes must outlive the pack. They are trusted as the program that holds them is.
    Pack(std::span<const std::byte> bytes, std::string name, WarningSink warn);
    ~Pack() override;

    std::optional<Entry> load(const Key& key) noexcept override;
    bool holds(const Key& key) const noexcept override;
    Listing list(Check check) const noexcept override;

    std::size_t size() const noexcept { return index_.size(); }
    std::filesystem::path location() const override { return location_; }
    const char* kind() const noexcept override;
    std::string refusal() const override { return refusal_; }
    std::uint64_t hits() const noexcept override { return hits_; }

  private:
    /// The bytes of the pack, wherever they are.
    class Source;
    struct Place {
        /// Of the key's text, 16 bytes.
        std::string digest;
        std::uint64_t position = 0;
        std::uint64_t bytes = 0;
    };

    void read_index();
    void refuse(const std::string& reason) noexcept;
    std::optional<Entry> load_checked(const Key& key, std::string& reason) const;

    std::filesystem::path location_;
    std::unique_ptr<Warnings> warnings_;
    std::unique_ptr<Source> source_;
    std::vector<Place> index_;
    std::string refusal_;
    std::atomic<std::uint64_t> hits_ = 0;
};

}  // namespace backlight::cache
