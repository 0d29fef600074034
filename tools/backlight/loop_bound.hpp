#pragma once

#include <optional>
#include <string_view>

#include "device/target.hpp"
#include "sass_counts.hpp"

namespace backlight::tool {

/// Clocks for which one multiprocessor's units are busy with a piece of code, if none ever waits.
/// The largest bounds the time from below.
struct BusyClocks {
    /// Nothing where it is not known how fast the target's tensor cores are.
    std::optional<double> tensor_cores = 0;
    /// Each of the four schedulers issues one instruction a clock.
    double issue_slots = 0;
    double shared_memory = 0;
    double mufu = 0;

    /// Of the units whose clocks are known.
    double bound() const noexcept;
    /// The unit that has them: "tensor cores".
    std::string_view bounding_unit() const noexcept;
};

BusyClocks operator+(const BusyClocks& left, const BusyClocks& right) noexcept;

/// `counts` of a warp, executed by `warps` that are spread evenly over the schedulers.
BusyClocks busy_clocks(const SassCounts& counts, int warps, const device::Target& target);

/// How fast the target's tensor cores are taken to be, and why.
std::string_view tensor_rate_source(const device::Target& target) noexcept;

}  // namespace backlight::tool
