// Kernels whose accumulator of dQ is a ring of places: several heads on few places, and faults
// planted in who waits, counts and leaves zeros.
#pragma once

#include <string>
#include <vector>

#include "planted_faults.hpp"

namespace backlight::test {

/// A fault for a run in which heads share places, and the reports by which it may be found beside
/// wrong numbers.
struct AccumulatorFault {
    std::string name;
    SourceEdit edit;
    std::vector<FaultKind> reports;
    /// Where a block takes one ticket, only blocks that run side by side are in each other's way.
    int host_threads = 1;
};

/// Eight heads on three places, one head a group; a head's dQ is converted `lag` rounds after its
/// key tiles.
struct ThreePlaces {
    const char* preset;
    int lag;
};

/// Checks, without a fault: right under many schedules, in one
/// thread and in several, and in any order of the blocks.
void require_right_with_three_places(const ThreePlaces& places);

/// The test fails unless each fault is found.
void require_found_with_three_places(const ThreePlaces& places,
                                     const std::vector<AccumulatorFault>& faults);

/// The test fails unless counters that keep what the run before has counted are found.
void require_counters_are_reset(const ThreePlaces& places);

}  // namespace backlight::test
