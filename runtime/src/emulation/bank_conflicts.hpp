#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "emulation/device_headers/emulator/machine.h"

namespace backlight::emulation {

/// What profilers tell of an instruction that accesses shared memory, by place in the source.
struct BankConflictCount {
    std::string site;
    /// Executions by a warp.
    std::uint64_t executions = 0;
    /// Passes through the 32 banks that these took, and the fewest that their bytes need.
    std::uint64_t wavefronts = 0;
    std::uint64_t least_wavefronts = 0;
};

/// Counts the wavefronts of shared-memory accesses. Safe to use from many threads.
class BankConflicts {
  public:
    /// One instruction of a warp: the address of each lane that takes part, and the bytes that each
    /// accesses (4, 8 or 16). For ldmatrix and stmatrix: one matrix's eight rows.
    void count(Site site, std::span<const std::uint32_t> addresses, std::uint32_t bytes,
               bool first_of_execution);

    std::vector<BankConflictCount> counts() const;

  private:
    mutable std::mutex mutex_;
    std::map<std::tuple<std::string, int>, BankConflictCount> counts_;
};

}  // namespace backlight::emulation
