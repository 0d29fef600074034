// Faults planted in kernels, and the proof that the emulated device finds them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "emulated_test_support.hpp"

namespace backlight::test {

/// A change that makes a kernel wrong.
struct PlantedFault {
    std::string name;
    std::vector<SourceEdit> edits;
    ProblemRun run;
    /// The reports that name it; empty: no report applies, and the numbers come out wrong.
    std::vector<FaultKind> reports;
    /// Found under one of the seeds 1 to this.
    std::uint64_t seeds = 1;
};

/// The test fails unless each is found, by a report that applies, and the kernel without it passes
/// the same problem under the same seeds.
void require_found(std::span<const PlantedFault> faults);

}  // namespace backlight::test
