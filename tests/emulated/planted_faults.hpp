// Faults planted in kernels, and the proof that the emulated device finds them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// A change to the one file that holds `from`, of the kernel's and those that it includes from
/// other kernels' folders.
SourceEdit edit_of(std::string_view kernel, std::string from, std::string to);

/// The test fails unless each is found, by a report that applies, and the kernel without it passes
/// the same problem under the same seeds.
void require_found(std::span<const PlantedFault> faults);

}  // namespace backlight::test
