#include "emulation/bank_conflicts.hpp"

#include <algorithm>
#include <array>

#include "emulation/fault.hpp"

namespace backlight::emulation {

namespace {

constexpr std::uint32_t banks = 32;
constexpr std::uint32_t bank_bytes = 4;

/// Passes that one group of lanes takes: the most different words that any bank must give.
std::uint64_t passes(std::span<const std::uint32_t> addresses, std::uint32_t bytes) {
    std::array<std::vector<std::uint32_t>, banks> words;
    for (const std::uint32_t address : addresses) {
        for (std::uint32_t byte = 0; byte < bytes; byte += bank_bytes) {
            const std::uint32_t word = (address + byte) / bank_bytes;
            auto& in_bank = words[word % banks];
            if (std::ranges::find(in_bank, word) == in_bank.end()) {
                in_bank.push_back(word);
            }
        }
    }
    std::size_t most = 0;
    for (const auto& in_bank : words) {
        most = std::max(most, in_bank.size());
    }
    return most;
}

}  // namespace

void BankConflicts::count(Site site, std::span<const std::uint32_t> addresses, std::uint32_t bytes,
                          bool first_of_execution) {
    // Wide accesses are made by as many lanes at a time as 128 bytes hold.
    const std::size_t lanes_at_once = banks * bank_bytes / bytes;
    std::uint64_t wavefronts = 0;
    std::uint64_t least = 0;
    for (std::size_t first = 0; first < addresses.size(); first += lanes_at_once) {
        wavefronts += passes(
            addresses.subspan(first, std::min(lanes_at_once, addresses.size() - first)), bytes);
        ++least;
    }
    const std::lock_guard lock(mutex_);
    BankConflictCount& counted = counts_[{site.file != nullptr ? site.file : "?", site.line}];
    counted.site = to_string(site);
    counted.executions += first_of_execution ? 1 : 0;
    counted.wavefronts += wavefronts;
    counted.least_wavefronts += least;
}

std::vector<BankConflictCount> BankConflicts::counts() const {
    const std::lock_guard lock(mutex_);
    std::vector<BankConflictCount> all;
    for (const auto& [key, counted] : counts_) {
        all.push_back(counted);
    }
    return all;
}

}  // namespace backlight::emulation
