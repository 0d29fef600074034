#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulation/device_headers/emulator/machine.h"
#include "emulation/fault.hpp"
#include "emulation/happens_before.hpp"
#include "emulation/shared_window.hpp"

namespace backlight::emulation {

/// The shared memory of a block, with what is known of every 32-bit word of it: who wrote it last
/// and when, whether a copy into it is under way, whether the asynchronous proxy may see it, and
/// who read it since. Every access is checked against that; a wrong one throws FaultFound.
///
/// Accesses are checked for order, not for luck: two accesses that no barrier orders are a fault in
/// whatever order this run made them.
class SharedMemory {
  public:
    SharedMemory(std::span<std::byte> memory, HappensBefore& order);

    /// Where a block's shared memory begins: what lies before belongs to the system.
    static constexpr std::uint32_t base = 1024;

    std::byte* at(std::uint32_t address) noexcept { return memory_.data() + (address - base); }
    SharedWindow window() const noexcept { return {.base = base, .bytes = memory_}; }

    /// An ordinary access of a thread. `alignment` is what the instruction asks of the address.
    void write(int thread, std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment,
               Site site);
    void read(int thread, std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment,
              Site site);

    /// The range belongs to an mbarrier from now on.
    void reserve(std::uint32_t address, std::uint32_t bytes);

    /// The thread's ordinary writes become visible to the asynchronous proxy.
    void fence(int thread);

    /// A copy into the range has been asked for by the thread: from now on it may happen.
    void begin_copy(int thread, std::uint32_t address, std::uint32_t bytes, Site site);
    /// It has happened, and whoever knows of `completion` may use what it brought.
    void finish_copy(std::uint32_t address, std::uint32_t bytes, HappensBefore::Event completion);

    /// The same for a copy of the thread's own (cp.async): no other proxy has part in it, and the
    /// thread itself knows when it is done. Of 4, 8 or 16 bytes.
    void begin_thread_copy(int thread, std::uint32_t address, std::uint32_t bytes, Site site);
    void finish_thread_copy(int thread, std::uint32_t address, std::uint32_t bytes);

    /// The asynchronous proxy reads the range on behalf of a thread: written, ordered before the
    /// thread's request, and fenced.
    void read_by_proxy(int thread, std::uint32_t address, std::uint32_t bytes, Site site);
    /// What was written to the range so far, as a number for each word.
    std::vector<std::uint32_t> versions(std::uint32_t address, std::uint32_t bytes) const;
    /// Throws `source_overwritten` if the range was written to since, or a copy into it begun.
    /// `reader` says what still reads.
    void require_unchanged(std::uint32_t address, std::span<const std::uint32_t> versions,
                           const std::string& reader) const;
    /// The range counts as read by the thread now.
    void note_read(int thread, std::uint32_t address, std::uint32_t bytes, Site site);
    /// The same for a reader that is no thread: whoever knows of `end` may overwrite the range.
    void note_asynchronous_read(HappensBefore::Event end, std::uint32_t address, Site site);

    /// Throws unless the range lies within the block's shared memory and is aligned.
    void require_range(std::uint32_t address, std::uint32_t bytes, std::uint32_t alignment,
                       Site site) const;

  private:
    using SiteNumber = std::uint16_t;

    struct Word {
        /// The last write; that of a copy under way once it has finished.
        HappensBefore::Event written;
        /// The writer's fence after it.
        std::uint32_t fenced = 0;
        std::uint32_t version = 0;
        SiteNumber site = 0;
        bool initialised = false;
        bool copy_in_flight = false;
        bool unfenced = false;
        /// Part of an mbarrier, which is opaque.
        bool barrier = false;
    };
    /// A read of words of a 16-byte piece that no later read or write is known to come after.
    struct Reader {
        HappensBefore::Event event;
        SiteNumber site = 0;
        /// Bits of the words of the piece.
        std::uint8_t words = 0;
    };
    static constexpr std::uint32_t word_bytes = 4;
    static constexpr std::uint32_t piece_bytes = 16;

    SiteNumber number_of(Site site);
    static std::uint8_t words_of_piece(std::uint32_t piece, std::uint32_t address,
                                       std::uint32_t bytes);
    void forget_reads(std::uint32_t address, std::uint32_t bytes);
    std::string writer_of(const Word& word) const;
    /// A write by the thread, or one that it asked for, must come after every earlier access.
    void require_exclusive(int thread, std::uint32_t first_word, std::uint32_t last_word,
                           const char* what, Site site);
    const Word& require_readable(int thread, std::uint32_t word, const char* what, Site site) const;

    std::span<std::byte> memory_;
    HappensBefore& order_;
    std::vector<Word> words_;
    std::vector<std::vector<Reader>> readers_;  // by piece
    /// Words that each thread has written since its last fence.
    std::vector<std::vector<std::uint32_t>> unfenced_;
    std::vector<Site> sites_;
    std::unordered_map<std::uint64_t, SiteNumber> site_numbers_;
    Site last_site_{};
    SiteNumber last_number_ = 0;
};

}  // namespace backlight::emulation
