// Kernels of the tests' own, for what the attention kernels do not use (yet) and for faults that
// are plainest on their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "emulated_test_support.hpp"
#include "tensor_map/tensor_map.hpp"

namespace backlight::test {

using Words = std::vector<std::uint32_t>;

/// first, first + 1, ...
Words counted(std::size_t count, std::uint32_t first = 1);

/// Each even word and the next one change places.
Words neighbours_swapped(Words words);

/// One block of a kernel `small_kernel(SmallArguments)`, and what it is to give.
struct SmallKernel {
    std::string name;
    /// Comes after `small_kernel_preamble`.
    std::string_view text;
    std::uint32_t threads = 32;
    std::uint32_t shared_bytes = 0;
    Words source;
    Words expected;
    /// Of the tensor that `source` is, or `out` with `map_of_output`; rank 0: there is none.
    tensor_map::Request map{.rank = 0};
    bool map_of_output = false;
};

/// What every text starts with: the arguments and the primitives.
extern const std::string_view small_kernel_preamble;

/// Rows of four fp32 numbers, copied eight at a time.
tensor_map::Request fp32_rows(std::int64_t rows);

/// What is in a kernel's text, and what comes in its place; see SourceEdit.
using TextEdit = std::pair<std::string, std::string>;

inline TextEdit without(std::string text) {
    return {std::move(text), ""};
}

/// Two neighbours the other way round.
inline TextEdit swapped(const std::string& first, const std::string& second) {
    return {first + second, second + first};
}

/// A change that makes a small kernel wrong.
struct SmallFault {
    std::string name;
    std::vector<TextEdit> edits;
    /// The reports that name it; empty: no report applies, and the numbers come out wrong.
    std::vector<FaultKind> reports;
    /// Found under one of the seeds 1 to this.
    std::uint64_t seeds = 4;
};

/// Runs the kernel once under each seed from 1 on, until `accept` takes an outcome or there are no
/// more; returns the last one.
Outcome run_small_kernel(EmulatedSession& session, const SmallKernel& kernel, std::uint64_t seeds,
                         const AcceptOutcome& accept = found_anything);

/// The test fails unless the kernel passes as it is, under many seeds, and each fault is found.
void require_found(const SmallKernel& kernel, std::span<const SmallFault> faults);

}  // namespace backlight::test
