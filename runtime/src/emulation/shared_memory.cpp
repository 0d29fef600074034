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
      readers_((base + memory.size() + piece_bytes - 1) / piece_bytes),
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

std::uint8_t SharedMemory::words_of_piece(std::uint32_t piece, std::uint32_t address,
                                          std::uint32_t bytes) {
    const std::uint32_t first = address > piece ? (address - piece) / word_bytes : 0;
    const std::uint32_t end =
        std::min(piece_bytes / word_bytes, (address + bytes - piece + word_bytes - 1) / word_bytes);
    return static_cast<std::uint8_t>((1U << end) - (1U << first));
}

void SharedMemory::forget_reads(std::uint32_t address, std::uint32_t bytes) {
    for (std::uint32_t piece = address / piece_bytes * piece_bytes; piece < address + bytes;
         piece += piece_bytes) {
        const std::uint8_t words = words_of_piece(piece, address, bytes);
        std::erase_if(readers_[piece / piece_bytes],
                      [&](const Reader& reader) { return (reader.words & ~words) == 0; });
    }
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
        if (word.barrier) {
            fault(FaultKind::barrier_misuse,
                  fmt::format("{}: {} of thread {} to shared address {:#x}, where the mbarrier "
                              "initialised at {} lies",
                              to_string(site), what, thread, index * word_bytes,
                              to_string(sites_[word.site])));
        }
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
        const std::uint8_t words = words_of_piece(
            address, std::max(address, first_word * word_bytes),
            (last_word + 1) * word_bytes - std::max(address, first_word * word_bytes));
        for (const Reader& reader : readers_[address / piece_bytes]) {
            if ((reader.words & words) == 0 || order_.knows(thread, reader.event)) {
                continue;
            }
            if (reader.event.component >= order_.threads()) {
                fault(FaultKind::source_overwritten,
                      fmt::format("{}: {} of thread {} to shared address {:#x}, which the wgmma at "
                                  "{} could still read",
                                  to_string(site), what, thread, address,
                                  to_string(sites_[reader.site])));
            }
            fault(FaultKind::data_race,
                  fmt::format("{}: {} of thread {} to shared address {:#x}, which thread {} "
                              "reads at {}: no barrier orders the two",
                              to_string(site), what, thread, address, reader.event.component,
                              to_string(sites_[reader.site])));
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
        const HappensBefore::Event now = order_.now(thread);
        const bool listed = word.unfenced && word.written.component == now.component;
        word.written = now;
        word.site = number;
        word.initialised = true;
        word.unfenced = true;
        ++word.version;
        if (!listed) {
            unfenced_[static_cast<std::size_t>(thread)].push_back(index);
        }
    }
    forget_reads(address, bytes);
}

const SharedMemory::Word& SharedMemory::require_readable(int thread, std::uint32_t index,
                                                         const char* what, Site site) const {
    const Word& word = words_[index];
    if (word.barrier) {
        fault(FaultKind::barrier_misuse,
              fmt::format("{}: {} of thread {} from shared address {:#x}, where the mbarrier "
                          "initialised at {} lies",
                          to_string(site), what, thread, index * word_bytes,
                          to_string(sites_[word.site])));
    }
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
    const SiteNumber number = number_of(site);
    for (std::uint32_t piece = address / piece_bytes * piece_bytes; piece < address + bytes;
         piece += piece_bytes) {
        const std::uint8_t words = words_of_piece(piece, address, bytes);
        auto& readers = readers_[piece / piece_bytes];
        // Whoever knows of this read knows of those that it comes after.
        std::erase_if(readers, [&](const Reader& reader) {
            return (reader.words & ~words) == 0 && order_.knows(thread, reader.event);
        });
        readers.push_back({order_.now(thread), number, words});
    }
}

void SharedMemory::note_asynchronous_read(HappensBefore::Event end, std::uint32_t address,
                                          Site site) {
    auto& readers = readers_[address / piece_bytes];
    // Products of a warpgroup end in order.
    std::erase_if(readers, [&](const Reader& reader) {
        return reader.event.component == end.component && reader.words == 0xf;
    });
    readers.push_back({end, number_of(site), 0xf});
}

void SharedMemory::reserve(std::uint32_t address, std::uint32_t bytes) {
    for (std::uint32_t index = address / word_bytes; index < (address + bytes) / word_bytes;
         ++index) {
        words_[index].barrier = true;
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
        if (word.unfenced ||
            (word.fenced != 0 && !order_.knows(thread, {word.written.component, word.fenced}))) {
            fault(
                FaultKind::missing_proxy_fence,
                fmt::format("{}: the copy asked for by thread {} overwrites shared address {:#x}, "
                            "which {} wrote with no fence.proxy.async between the write and the "
                            "barrier: the write may come after the copy",
                            to_string(site), thread, index * word_bytes, writer_of(word)));
        }
        word.copy_in_flight = true;
        word.site = number;
        ++word.version;
    }
    forget_reads(address, bytes);
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
        // A fence before the copy had ended did not cover it.
        word.unfenced = true;
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
