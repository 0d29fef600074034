#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace backlight::compiler {

/// What ptxas says of a kernel in its verbose log.
struct ResourceUsage {
    int registers = 0;
    int stack_bytes = 0;
    int spill_store_bytes = 0;
    int spill_load_bytes = 0;
    int static_shared_bytes = 0;
    /// What ptxas tells as a mere information and costs a kernel that is written for Hopper much of
    /// its speed, its messages C75xx as they are: products of wgmma that are made to wait for each
    /// other, a setmaxnreg that is ignored.
    std::vector<std::string> performance_warnings = {};

    bool operator==(const ResourceUsage&) const = default;
};

/// Reads the lines that ptxas prints with -v, for a log of one kernel; throws `compile_failed`
/// where they are not there (a log without them would read as "no spills").
ResourceUsage parse_resource_usage(std::string_view log);

}  // namespace backlight::compiler
