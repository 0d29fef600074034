#include "backlight/cache/pack.hpp"

#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <map>
#include <stdexcept>
#include <utility>

#include "backlight/cache/trust.hpp"
#include "byte_order.hpp"
#include "digest.hpp"
#include "entry_file.hpp"
#include "entry_format.hpp"
#include "file.hpp"
#include "warnings.hpp"

namespace backlight::cache {

// A pack:
//
//     "BLPACK" and a zero, the format's version         8 bytes
//     number of entries                                 8 bytes, little-endian, as all numbers
//     the index, ordered by digest: for each entry
//         XXH3-128 of its key's text                    16 bytes
//         its position in the pack, its length          2 times 8 bytes
//     XXH3-128 of all before it                         16 bytes
//     the entries, as their files are, one after the other in the order of the index

namespace {

constexpr std::string_view magic = {"BLPACK\0\x01", 8};
constexpr std::size_t header_bytes = magic.size() + number_bytes;
constexpr std::size_t place_bytes = digest_bytes + 2 * number_bytes;

}  // namespace

class Pack::Source {
  public:
    explicit Source(std::span<const std::byte> memory)
        : memory_(reinterpret_cast<const char*>(memory.data()), memory.size()),
          bytes_(memory.size()) {}
    explicit Source(File file) : file_(std::move(file)), bytes_(file_.status().bytes) {}

    bool in_memory() const noexcept { return !file_.opened(); }
    std::uint64_t bytes() const noexcept { return bytes_; }

    /// A stretch that lies within the pack. `buffer` holds what had to be read.
    std::string_view read(std::uint64_t position, std::uint64_t count, std::string& buffer) const {
        if (in_memory()) {
            return memory_.substr(static_cast<std::size_t>(position),
                                  static_cast<std::size_t>(count));
        }
        buffer = file_.read(position, static_cast<std::size_t>(count));
        return buffer;
    }

  private:
    File file_;
    std::string_view memory_;
    std::uint64_t bytes_ = 0;
};

std::optional<std::string> encode_pack(std::span<const PackedEntry> entries, std::string& reason) {
    std::map<std::string, std::string> encoded;
    for (const PackedEntry& packed : entries) {
        std::string bytes = encode_entry(packed.key.text(), packed.entry);
        const auto [place, added] = encoded.try_emplace(binary_digest_of(packed.key.text()), bytes);
        if (!added && place->second != bytes) {
            reason = "two different entries have the key\n" + packed.key.text();
            return std::nullopt;
        }
    }
    std::string pack(magic);
    append_number(pack, encoded.size());
    std::uint64_t position = header_bytes + encoded.size() * place_bytes + digest_bytes;
    for (const auto& [digest, bytes] : encoded) {
        pack += digest;
        append_number(pack, position);
        append_number(pack, bytes.size());
        position += bytes.size();
    }
    pack += binary_digest_of(pack);
    for (const auto& [digest, bytes] : encoded) {
        pack += bytes;
    }
    return pack;
}

bool write_pack(const std::filesystem::path& path, std::span<const PackedEntry> entries,
                std::string& reason) noexcept {
    try {
        const auto bytes = encode_pack(entries, reason);
        if (!bytes) {
            return false;
        }
        publish(path, *bytes, {.readable_by_others = true});
        return true;
    } catch (const std::exception& error) {
        reason = error.what();
        return false;
    }
}

Pack::Pack(const std::filesystem::path& path, WarningSink warn)
    : location_(path), warnings_(std::make_unique<Warnings>(std::move(warn))) {
    try {
        const TrustVerdict verdict = judge_path(path, TrustedAs::file, Identity::of_process());
        if (verdict.kind == TrustVerdict::Kind::refused) {
            refuse(verdict.reason);
            return;
        }
        // The way there may end in a link, which was judged; the file at its end is opened.
        File file = File::open(std::filesystem::canonical(path), O_RDONLY);
        if (!file.opened()) {
            throw failure("open the pack");
        }
        source_ = std::make_unique<Source>(std::move(file));
        read_index();
    } catch (const std::exception& error) {
        refuse(error.what());
    }
}

Pack::Pack(std::span<const std::byte> bytes, std::string name, WarningSink warn)
    : location_(std::move(name)), warnings_(std::make_unique<Warnings>(std::move(warn))) {
    try {
        source_ = std::make_unique<Source>(bytes);
        read_index();
    } catch (const std::exception& error) {
        refuse(error.what());
    }
}

Pack::~Pack() = default;

const char* Pack::kind() const noexcept {
    return source_ != nullptr && source_->in_memory() ? "pack in memory" : "pack";
}

void Pack::refuse(const std::string& reason) noexcept {
    index_.clear();
    refusal_ = reason;
    warnings_->tell_once({"the cache pack ", location_.native(), " is not used: ", refusal_});
}

void Pack::read_index() {
    const auto require = [](bool holds, const char* otherwise) {
        if (!holds) {
            throw std::runtime_error(otherwise);
        }
    };
    std::string buffer;
    const std::uint64_t size = source_->bytes();
    require(size >= header_bytes + digest_bytes, "it is too short");
    const std::string header(source_->read(0, header_bytes, buffer));
    require(header.size() == header_bytes, "it is too short");
    require(header.substr(0, magic.size() - 1) == magic.substr(0, magic.size() - 1),
            "it is not a pack");
    require(header[magic.size() - 1] == magic.back(), "it is of another format version");
    const std::uint64_t count = number_at(header, magic.size());
    require(count <= (size - header_bytes - digest_bytes) / place_bytes,
            "its index does not fit its size");
    const auto checked_bytes = static_cast<std::size_t>(header_bytes + count * place_bytes);
    const std::string_view whole = source_->read(0, checked_bytes + digest_bytes, buffer);
    require(whole.size() == checked_bytes + digest_bytes, "it is too short");
    const std::string_view checked = whole.substr(0, checked_bytes);
    require(binary_digest_of(checked) == whole.substr(checked_bytes),
            "the checksum of its index is wrong");

    // What is behind the checksum is as it was written; a size that does not fit is a cut.
    std::uint64_t position = whole.size();
    index_.reserve(static_cast<std::size_t>(count));
    for (std::size_t at = header_bytes; at < checked_bytes; at += place_bytes) {
        Place place{.digest = std::string(checked.substr(at, digest_bytes)),
                    .position = number_at(checked, at + digest_bytes),
                    .bytes = number_at(checked, at + digest_bytes + number_bytes)};
        require(place.position == position && place.bytes <= size - position,
                "its entries do not fit its size");
        require(index_.empty() || index_.back().digest < place.digest, "its index has no order");
        position += place.bytes;
        index_.push_back(std::move(place));
    }
    require(position == size, "its entries do not fit its size");
}

std::optional<Entry> Pack::load_checked(const Key& key, std::string& reason) const {
    const std::string digest = binary_digest_of(key.text());
    const auto place = std::lower_bound(
        index_.begin(), index_.end(), digest,
        [](const Place& one, const std::string& wanted) { return one.digest < wanted; });
    if (place == index_.end() || place->digest != digest) {
        return std::nullopt;
    }
    std::string buffer;
    return decode_entry(source_->read(place->position, place->bytes, buffer), key.text(), reason);
}

std::optional<Entry> Pack::load(const Key& key) noexcept {
    std::string reason;
    try {
        if (auto entry = load_checked(key, reason)) {
            ++hits_;
            return entry;
        }
        if (!reason.empty()) {
            warnings_->tell_once({"entry ", key.digest(), " of the cache pack ", location_.native(),
                                  " is not used: ", reason});
        }
    } catch (const std::exception& error) {
        warnings_->tell_once(
            {"the cache pack ", location_.native(), " cannot be read: ", error.what()});
    }
    return std::nullopt;
}

bool Pack::holds(const Key& key) const noexcept {
    try {
        std::string reason;
        return load_checked(key, reason).has_value();
    } catch (const std::exception&) {
        return false;
    }
}

Listing Pack::list(Check check) const noexcept {
    Listing listing;
    try {
        listing.problem = refusal_;
        for (const Place& place : index_) {
            std::string buffer;
            std::string reason;
            const std::string_view bytes = source_->read(place.position, place.bytes, buffer);
            auto entry = describe_entry(bytes, place.bytes, check, reason);
            if (entry && binary_digest_of(entry->key.text()) != place.digest) {
                entry.reset();
                reason = "it belongs to another key";
            }
            if (entry) {
                entry->path = location_;
                listing.entries.push_back(std::move(*entry));
            } else {
                listing.bad.push_back({location_ / hexadecimal(place.digest), std::move(reason)});
            }
        }
    } catch (const std::exception& error) {
        listing.problem = error.what();
    }
    return listing;
}

}  // namespace backlight::cache
