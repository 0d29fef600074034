#include "emulation/shared_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace backlight::emulation {

namespace {

std::uint64_t identity(Site site) {
    return reinterpret_cast<std::uintptr_t>(site.file) ^ static_cast<std::uint64_t>(site.line)
                                                             << 48;
}

[[noreturn]] void fault(FaultKind kind, std::string message) {
    throw FaultFound{kind, std::move(message)};
}

}  // namespace

SharedMemory::SharedMemory(std::span<std::byte> memory, HappensBefore& order)
    : memory_(memory),
      order_(order),
      words_((base + memory.size() + word_bytes - 1) / word_bytes),
      warps_((static_cast<std::size_t>(order.threads()) + 31) / 32),
      readers_((base + memory.size() + piece_bytes - 1) / piece_bytes * warps_),
      unfenced_(static_cast<std::size_t>(order.threads())) {
    // What nothing has written is a NaN in every type, for those reads that are not seen here.
    std::ranges::fill(memory_, std::byte{0xff});
}

SharedMemory::SiteNumber SharedMemory::number_of(Site site) {
    if (site.line == last_site_.line && site.file == last_site_.file) {
        return last_number_;
    }
    const auto [found, fresh] = site_numbers_.try_emplace(
        identity(site), static_cast<SiteNumber>(std::min<std::size_t>(sites_.size(), 0xffff)));
    if (fresh) {
        sites_.push_back(site);
    }
    last_site_ = site;
    last_number_ = found->second;
    return found->second;
}

std::span<SharedMemory::Reader> SharedMemory::readers_of(std::uint32_t address) {
    return std::span(readers_).subspan(address / piece_bytes * warps_, warps_);
}

std::string SharedMemory::writer_of(const Word& word) const {
    const std::string site = to_string(sites_[word.site]);
    return word.written.component < order_.threads()
               ? fmt::format("thread {} at {}", word.written.component, site)
               : fmt::format("a copy asked for at {}", site);
}

void SharedMemory::require_range(std::uint32_t address, std::uint32_t bytes,
                                 std::uint32_t alignment, Site site) const {
    if (!window().contains(address, bytes)) {
        fault(FaultKind::out_of_bounds,
              fmt::format("{}: an access of {} bytes at shared address {:#x}: the block has the "
                          "{:#x} bytes from {:#x} on",
                          to_string(site), bytes, address, memory_.size(), base));
    }
    if (address % alignment != 0) {
        fault(FaultKind::misaligned,
              fmt::format("{}: shared address {:#x} must be a multiple of {}", to_string(site),
                          address, alignment));
    }
}

void SharedMemory::require_exclusive(int thread, std::uint32_t first_word, std::uint32_t last_word,
                                     const char* what, Site site) {
    for (std::uint32_t index = first_word; index <= last_word; ++index) {
        const Word& word = words_[index];
        if (word.copy_in_flight) {
            fault(
                FaultKind::copy_in_flight,
                fmt::format("{}: {} of thread {} to shared address {:#x}, into which a copy asked "
                            "for at {} is under way",
                            to_string(site), what, thread, index * word_bytes,
                            to_string(sites_[word.site])));
        }
        if (word.initialised && !order_.knows(thread, word.written)) {
            fault(FaultKind::data_race,
                  fmt::format("{}: {} of thread {} to shared address {:#x}, which {} wrote: no "
                              "barrier orders the two",
                              to_string(site), what, thread, index * word_bytes, writer_of(word)));
        }
    }
    for (std::uint32_t address = first_word * word_bytes / piece_bytes * piece_bytes;
         address <= last_word * word_bytes; address += piece_bytes) {
        for (Reader& reader : readers_of(address)) {
            if (reader.count == 0) {
                continue;
            }
            if (!order_.knows(thread, {reader.thread, reader.count})) {
                fault(FaultKind::data_race,
                      fmt::format("{}: {} of thread {} to shared address {:#x}, which thread {} "
                                  "reads at {}: no barrier orders the two",
                                  to_string(site), what, thread, address, reader.thread,
                                  to_string(sites_[reader.site])));
            }
        }
    }
}

void SharedMemory::write(int thread, std::uint32_t address, std::uint32_t bytes,
                         std::uint32_t alignment, Site site) {
    require_range(address, bytes, alignment, site);
    const std::uint32_t first = address / word_bytes;
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    require_exclusive(thread, first, last, "the write", site);
    const SiteNumber number = number_of(site);
    for (std::uint32_t index = first; index <= last; ++index) {
        Word& word = words_[index];
        word.written = order_.now(thread);
        word.site = number;
        word.initialised = true;
        word.unfenced = true;
        ++word.version;
        unfenced_[static_cast<std::size_t>(thread)].push_back(index);
    }
    // Reads of the other words of a 16-byte piece stay to be checked.
    if (address % piece_bytes == 0 && bytes % piece_bytes == 0) {
        for (std::uint32_t piece = address; piece < address + bytes; piece += piece_bytes) {
            std::ranges::fill(readers_of(piece), Reader{});
        }
    }
}

const SharedMemory::Word& SharedMemory::require_readable(int thread, std::uint32_t index,
                                                         const char* what, Site site) const {
    const Word& word = words_[index];
    if (word.copy_in_flight) {
        fault(FaultKind::copy_in_flight,
              fmt::format("{}: {} of thread {} from shared address {:#x}, into which a copy asked "
                          "for at {} is under way",
                          to_string(site), what, thread, index * word_bytes,
                          to_string(sites_[word.site])));
    }
    if (!word.initialised) {
        fault(
            FaultKind::uninitialised_read,
            fmt::format("{}: {} of thread {} from shared address {:#x}, which nothing has written",
                        to_string(site), what, thread, index * word_bytes));
    }
    if (!order_.knows(thread, word.written)) {
        fault(
            FaultKind::data_race,
            fmt::format("{}: {} of thread {} from shared address {:#x}, which {} wrote: no barrier "
                        "orders the two",
                        to_string(site), what, thread, index * word_bytes, writer_of(word)));
    }
    return word;
}

void SharedMemory::read(int thread, std::uint32_t address, std::uint32_t bytes,
                        std::uint32_t alignment, Site site) {
    require_range(address, bytes, alignment, site);
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    for (std::uint32_t index = address / word_bytes; index <= last; ++index) {
        require_readable(thread, index, "the read", site);
    }
    note_read(thread, address, bytes, site);
}

void SharedMemory::note_read(int thread, std::uint32_t address, std::uint32_t bytes, Site site) {
    const Reader reader{order_.now(thread).count, static_cast<std::uint16_t>(thread),
                        number_of(site)};
    const std::size_t warp = static_cast<std::size_t>(thread) / 32;
    for (std::uint32_t piece = address / piece_bytes * piece_bytes; piece < address + bytes;
         piece += piece_bytes) {
        readers_of(piece)[warp] = reader;
    }
}

void SharedMemory::fence(int thread) {
    const HappensBefore::Event now = order_.now(thread);
    auto& written = unfenced_[static_cast<std::size_t>(thread)];
    for (const std::uint32_t index : written) {
        Word& word = words_[index];
        if (word.unfenced && word.written.component == now.component) {
            word.unfenced = false;
            word.fenced = now.count;
        }
    }
    written.clear();
}

void SharedMemory::begin_copy(int thread, std::uint32_t address, std::uint32_t bytes, Site site) {
    require_range(address, bytes, piece_bytes, site);
    const std::uint32_t first = address / word_bytes;
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    require_exclusive(thread, first, last, "the copy", site);
    const SiteNumber number = number_of(site);
    for (std::uint32_t index = first; index <= last; ++index) {
        Word& word = words_[index];
        word.copy_in_flight = true;
        word.site = number;
        ++word.version;
    }
    for (std::uint32_t piece = address; piece < address + bytes; piece += piece_bytes) {
        std::ranges::fill(readers_of(piece), Reader{});
    }
}

void SharedMemory::finish_copy(std::uint32_t address, std::uint32_t bytes,
                               HappensBefore::Event completion) {
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    for (std::uint32_t index = address / word_bytes; index <= last; ++index) {
        Word& word = words_[index];
        word.copy_in_flight = false;
        word.initialised = true;
        word.unfenced = false;
        word.fenced = 0;
        word.written = completion;
    }
}

void SharedMemory::begin_thread_copy(int thread, std::uint32_t address, std::uint32_t bytes,
                                     Site site) {
    write(thread, address, bytes, bytes, site);
    for (std::uint32_t index = address / word_bytes; index < (address + bytes) / word_bytes;
         ++index) {
        words_[index].copy_in_flight = true;
    }
}

void SharedMemory::finish_thread_copy(int thread, std::uint32_t address, std::uint32_t bytes) {
    for (std::uint32_t index = address / word_bytes; index < (address + bytes) / word_bytes;
         ++index) {
        Word& word = words_[index];
        word.copy_in_flight = false;
        word.written = order_.now(thread);
        unfenced_[static_cast<std::size_t>(thread)].push_back(index);
    }
}

void SharedMemory::read_by_proxy(int thread, std::uint32_t address, std::uint32_t bytes,
                                 Site site) {
    require_range(address, bytes, 1, site);
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    for (std::uint32_t index = address / word_bytes; index <= last; ++index) {
        const Word& word = require_readable(thread, index, "the asynchronous read", site);
        const bool fence_known =
            word.fenced == 0 || order_.knows(thread, {word.written.component, word.fenced});
        if (word.unfenced || !fence_known) {
            fault(
                FaultKind::missing_proxy_fence,
                fmt::format("{}: the asynchronous read asked for by thread {} meets shared address "
                            "{:#x}, which {} wrote with no fence.proxy.async between the write "
                            "and the barrier",
                            to_string(site), thread, index * word_bytes, writer_of(word)));
        }
    }
}

std::vector<std::uint32_t> SharedMemory::versions(std::uint32_t address,
                                                  std::uint32_t bytes) const {
    std::vector<std::uint32_t> versions;
    const std::uint32_t last = (address + bytes - 1) / word_bytes;
    for (std::uint32_t index = address / word_bytes; index <= last; ++index) {
        versions.push_back(words_[index].version);
    }
    return versions;
}

void SharedMemory::require_unchanged(std::uint32_t address, std::span<const std::uint32_t> versions,
                                     const std::string& reader) const {
    const std::uint32_t first = address / word_bytes;
    for (std::size_t i = 0; i < versions.size(); ++i) {
        const Word& word = words_[first + i];
        if (word.version != versions[i]) {
            fault(
                FaultKind::source_overwritten,
                fmt::format("shared address {:#x} was overwritten at {} while {} could still read "
                            "it",
                            (first + i) * word_bytes, to_string(sites_[word.site]), reader));
        }
    }
}

}  // namespace backlight::emulation
